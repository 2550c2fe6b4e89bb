// `quire eval streaming`: a text far beyond the model's context, read by one sequence that keeps
// its first and its newest tokens.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_eviction_flags.h"
#include "cli/eval_flags.h"
#include "cli/markdown_table.h"
#include "cli/progress_bar.h"
#include "eval/streaming.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

// How many times as fast as computing the same codec's tokens afresh; nothing where none was.
std::optional<double> SpeedUp(const eval::StreamingReport& report,
                              const eval::StreamingScore& score) {
  for (const eval::StreamingScore& other : report.scores) {
    if (other.afresh() && other.variant.name == score.variant.name) {
      return score.tokens_per_s / other.tokens_per_s;
    }
  }
  return std::nullopt;
}

std::string AsTable(const eval::StreamingReport& report) {
  MarkdownTable table({"codec", "tokens", "kept", "perplexity", "of the sample", "over afresh",
                       "+-", "tokens/s", "speed"});
  for (const eval::StreamingScore& score : report.scores) {
    const bool sampled = report.recomputed_tokens > 0;
    const std::optional<double> speed = SpeedUp(report, score);
    table.AddRow(
        {score.variant.name,
         score.afresh() ? "afresh" : fmt::format("sinks {}", score.variant.eviction.options.sinks),
         fmt::format("{:.0f}", score.tokens_kept),
         score.afresh() ? "-" : fmt::format("{:.4f}", score.perplexity),
         sampled ? fmt::format("{:.4f}", score.sampled_perplexity) : "-",
         sampled ? fmt::format("{:+.2f} %", 100 * score.sampled_rise) : "-",
         sampled ? fmt::format("{:.2f}", 100 * score.sampled_rise_error) : "-",
         fmt::format("{:.0f}", score.tokens_per_s), speed ? fmt::format("{:.1f} x", *speed) : "-"});
  }
  return table.Text();
}

class EvalStreamingCommand : public Command {
 public:
  std::string_view name() const override { return "eval streaming"; }
  std::string_view summary() const override {
    return "Perplexity of a text beyond the model's context, keeping first and newest tokens.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("FILE", &path_, "The text; - reads stdin.").Required();
    flags
        .Add("tokens", &options_.tokens,
             "Score at most so many tokens, from the first that the budget does not hold; 0: all.")
        .Unit("tokens")
        .AtLeast(0);
    flags.Add("kv-budget", &options_.budget, "Tokens that the sequence keeps, BOS included.")
        .Unit("tokens")
        .Range(2, 1 << 24);
    flags
        .Add("kv-sinks", &sinks_,
             "First tokens that are always kept, as a list or repeated; without it 0,4.")
        .Metavar("TOKENS");
    flags
        .Add("recomputed", &options_.recomputed,
             "Score so many tokens, evenly spread, also with the newest computed afresh; 0: none.")
        .Unit("tokens")
        .Range(0, 1 << 24);
    eval_.Declare(flags);
    flags.Example("quire eval streaming models/val.txt --tokens 4000",
                  "Four thousand tokens with 256 kept: no sinks, 4 sinks, and computed afresh");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(options_.codecs, eval_.Codecs());
    QUIRE_ASSIGN_OR_RETURN(options_.sinks, ParseSinkLists(sinks_, {0, 4}));
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(path_));
    QUIRE_ASSIGN_OR_RETURN(text, FirstBytes(std::move(text), 0, path_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running, eval_.LoadModel(context.terminal));
    const std::vector<TokenId> tokens = running.model->tokenizer().Encode(text);
    std::optional<ProgressBar> bar;
    QUIRE_ASSIGN_OR_RETURN(
        const eval::StreamingReport report,
        eval::MeasureStreaming(
            *running.model, tokens, options_, *running.team, [&](int64_t done, int64_t total) {
              if (!bar) {
                bar.emplace(
                    context.terminal,
                    ProgressBarOptions{.label = "streaming", .total = total, .unit = "tokens"});
              }
              bar->Update(done, done);
            }));
    QUIRE_RETURN_IF_ERROR(Plot(report));
    if (context.json) return WriteJson(AsJson(report, running));
    return WriteOut(AsTable(report) + "\n" + Method(report, running));
  }

 private:
  std::string Method(const eval::StreamingReport& report, const RunningModel& running) const {
    std::string method = fmt::format(
        "{} tokens scored one by one after the first {}, by a model whose context is "
        "{}",
        report.scored_tokens, options_.budget, running.model->config().context_length);
    if (report.recomputed_tokens == 0) return method + ".\n";
    return method + fmt::format(
                        "; the sample is {} of them, evenly spread, each also scored after "
                        "{}{} tokens computed afresh.\n",
                        report.recomputed_tokens, report.bos ? "BOS and " : "",
                        options_.budget - (report.bos ? 1 : 0));
  }

  Status Plot(const eval::StreamingReport& report) const {
    std::vector<PlotPoint> points;
    for (const eval::StreamingScore& score : report.scores) {
      const double perplexity = score.afresh() ? score.sampled_perplexity : score.perplexity;
      points.push_back({fmt::format("{}, {}", score.variant.name,
                                    score.afresh() ? "afresh" : NameOf(score.variant.eviction)),
                        1000 / score.tokens_per_s, perplexity});
    }
    return eval_.WritePlot({.title = "Perplexity of a long text against time",
                            .x_axis = "milliseconds per token",
                            .y_axis = "perplexity"},
                           points);
  }

  json::object AsJson(const eval::StreamingReport& report, const RunningModel& running) const {
    json::array rows;
    for (const eval::StreamingScore& score : report.scores) {
      json::object row = CodecAsJson(score.variant, score.cost);
      AddEviction(score.variant.eviction, row);
      row["tokens_kept"] = score.tokens_kept;
      if (!score.afresh()) row["perplexity"] = score.perplexity;
      if (report.recomputed_tokens > 0) {
        row["sampled_perplexity"] = score.sampled_perplexity;
        row["sampled_rise"] = score.sampled_rise;
        row["sampled_rise_error"] = score.sampled_rise_error;
      }
      row["tokens_per_second"] = score.tokens_per_s;
      if (const auto speed = SpeedUp(report, score)) row["speed_up"] = *speed;
      rows.push_back(std::move(row));
    }
    return {{"model", running.model->name()},
            {"text", path_},
            {"text_tokens", report.text_tokens},
            {"scored_tokens", report.scored_tokens},
            {"recomputed_tokens", report.recomputed_tokens},
            {"bos", report.bos},
            {"streams", std::move(rows)}};
  }

  EvalFlags eval_;
  std::string path_;
  std::vector<std::string> sinks_;
  eval::StreamingOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalStreamingCommand() {
  return std::make_unique<EvalStreamingCommand>();
}

}  // namespace quire::cli
