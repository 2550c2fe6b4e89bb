#include "cli/eval_eviction_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/eval_eviction_flags.h"
#include "cli/eval_flags.h"
#include "cli/markdown_table.h"

namespace quire::cli {

namespace json = boost::json;

std::string EvictionTable(const eval::EvictionPerplexityReport& report) {
  std::vector<std::string> header = {"codec"};
  header.insert(header.end(), kEvictionColumns.begin(), kEvictionColumns.end());
  header.insert(header.end(), {"tokens kept", "perplexity", "rise", "+-", "tokens/s"});
  MarkdownTable table(std::move(header));
  for (const eval::EvictionScore& score : report.scores) {
    std::vector<std::string> row = {score.variant.name};
    for (std::string& cell : EvictionCells(score.variant.eviction)) row.push_back(std::move(cell));
    row.push_back(fmt::format("{:.0f}", score.tokens_kept));
    row.push_back(fmt::format("{:.4f}", score.perplexity));
    row.push_back(fmt::format("{:+.2f} %", 100 * score.rise));
    row.push_back(fmt::format("{:.2f}", 100 * score.rise_error));
    row.push_back(fmt::format("{:.0f}", score.tokens_per_s));
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string EvictionMethod(const eval::EvictionPerplexityReport& report,
                           const eval::EvictionPerplexityOptions& options) {
  return fmt::format(
      "{} of {} tokens scored one by one in {} windows of {}, stride {}, after prompts of {}; "
      "{}.\n",
      report.scored_tokens, report.text_tokens, report.windows, options.context, options.stride,
      options.prompt,
      report.bos ? "every window begins with BOS" : "no BOS, as the tokenizer adds none");
}

json::array EvictionScoresAsJson(const eval::EvictionPerplexityReport& report) {
  json::array scores;
  for (const eval::EvictionScore& score : report.scores) {
    json::object row = CodecAsJson(score.variant, score.cost);
    AddEviction(score.variant.eviction, row);
    row["tokens_kept"] = score.tokens_kept;
    row["perplexity"] = score.perplexity;
    row["mean_nll"] = score.mean_nll;
    row["rise"] = score.rise;
    row["rise_error"] = score.rise_error;
    row["seconds"] = score.seconds;
    row["tokens_per_second"] = score.tokens_per_s;
    scores.push_back(std::move(row));
  }
  return scores;
}

std::vector<PlotPoint> EvictionPoints(const eval::EvictionPerplexityReport& report) {
  const std::string& first = report.scores.front().variant.name;
  const bool one_codec = std::ranges::all_of(
      report.scores, [&](const eval::EvictionScore& score) { return score.variant.name == first; });
  std::vector<PlotPoint> points;
  for (const eval::EvictionScore& score : report.scores) {
    const std::string policy = NameOf(score.variant.eviction);
    points.push_back({one_codec ? policy : fmt::format("{}, {}", score.variant.name, policy),
                      score.tokens_kept, score.perplexity});
  }
  return points;
}

}  // namespace quire::cli
