// `quire eval longgen`: how far greedy continuations go along with f32's, for each KV codec.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_flags.h"
#include "cli/markdown_table.h"
#include "cli/progress_bar.h"
#include "eval/long_generation.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

int Least(const eval::LongGenerationScore& score) {
  return *std::ranges::min_element(score.equal_tokens);
}

int Median(const eval::LongGenerationScore& score) {
  std::vector<int> sorted = score.equal_tokens;
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) / 2];
}

std::string AsTable(const eval::LongGenerationReport& report) {
  std::vector<std::string> header = kCodecColumns;
  header.insert(header.end(), {"identical", "least equal", "median equal", "mean equal",
                               "agreement", "agreement given f32's text"});
  MarkdownTable table(std::move(header));
  for (const eval::LongGenerationScore& score : report.scores) {
    std::vector<std::string> row = CodecCells(score.variant, score.cost);
    row.push_back(fmt::format("{} of {}", score.identical(), score.equal_tokens.size()));
    row.push_back(fmt::format("{}", Least(score)));
    row.push_back(fmt::format("{}", Median(score)));
    row.push_back(fmt::format("{:.0f}", score.mean_equal()));
    row.push_back(fmt::format("{:.1f} %", 100 * score.agreement));
    row.push_back(fmt::format("{:.2f} %", 100 * score.forced_agreement));
    table.AddRow(std::move(row));
  }
  return table.Text();
}

json::object AsJson(const eval::LongGenerationScore& score) {
  json::object codec = CodecAsJson(score.variant, score.cost);
  codec["equal_tokens"] = json::value_from(score.equal_tokens);
  codec["identical"] = score.identical();
  codec["least_equal"] = Least(score);
  codec["median_equal"] = Median(score);
  codec["mean_equal"] = score.mean_equal();
  codec["agreement"] = score.agreement;
  codec["forced_agreement"] = score.forced_agreement;
  return codec;
}

class EvalLonggenCommand : public Command {
 public:
  std::string_view name() const override { return "eval longgen"; }
  std::string_view summary() const override {
    return "Where greedy continuations leave f32's, for each KV codec.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("FILE", &path_, "A text that prompts are cut from; - reads stdin.").Required();
    flags.Add("prompts", &prompts_, "How many prompts, from places spread over the text.")
        .Range(1, 10'000);
    flags.Add("prompt-len", &prompt_tokens_, "Length of a prompt, BOS included.")
        .Unit("tokens")
        .Range(2, 1 << 24);
    flags.Add("tokens", &options_.tokens, "Generated per prompt.").Unit("tokens").Range(1, 1 << 24);
    eval_.Declare(flags);
    flags.Example("quire eval longgen models/val.txt --kv-cache-dtype f16,bf16",
                  "512 tokens after each of 8 prompts with f32, f16 and bf16");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(options_.variants, eval_.Variants());
    QUIRE_ASSIGN_OR_RETURN(options_.reference, eval_.Reference());
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(path_));
    QUIRE_ASSIGN_OR_RETURN(text, FirstBytes(std::move(text), 0, path_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running, eval_.LoadModel(context.terminal));
    QUIRE_ASSIGN_OR_RETURN(const auto prompts, eval::CutPrompts(running.model->tokenizer(), text,
                                                                prompts_, prompt_tokens_));
    const auto variants = static_cast<int64_t>(options_.variants.size()) + 1;
    ProgressBar bar(
        context.terminal,
        {.label = "longgen", .total = variants * prompts_ * options_.tokens, .unit = "tokens"});
    QUIRE_ASSIGN_OR_RETURN(
        const eval::LongGenerationReport report,
        eval::MeasureLongGeneration(*running.model, prompts, options_, *running.team,
                                    [&](int64_t done) { bar.Update(done, done); }));
    QUIRE_RETURN_IF_ERROR(Plot(report));
    if (!context.json) {
      return WriteOut(AsTable(report) +
                      fmt::format("\n{} prompts of {} tokens, {} tokens after each.\n", prompts_,
                                  prompt_tokens_, options_.tokens));
    }
    json::array codecs;
    for (const eval::LongGenerationScore& score : report.scores) codecs.push_back(AsJson(score));
    return WriteJson({{"model", running.model->name()},
                      {"text", path_},
                      {"prompts", prompts_},
                      {"prompt_tokens", prompt_tokens_},
                      {"tokens", options_.tokens},
                      {"codecs", std::move(codecs)}});
  }

 private:
  Status Plot(const eval::LongGenerationReport& report) const {
    std::vector<PlotPoint> points;
    for (const eval::LongGenerationScore& score : report.scores) {
      points.push_back(
          {score.variant.name, score.cost.bytes_per_token, 100 * (1 - score.forced_agreement)});
    }
    return eval_.WritePlot({.title = "Greedy disagreement with f32 against KV memory",
                            .x_axis = "KV bytes per token",
                            .y_axis = "another next token given f32's text, %"},
                           points);
  }

  EvalFlags eval_;
  std::string path_;
  int prompts_ = 8;
  int prompt_tokens_ = 128;
  eval::LongGenerationOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalLonggenCommand() {
  return std::make_unique<EvalLonggenCommand>();
}

}  // namespace quire::cli
