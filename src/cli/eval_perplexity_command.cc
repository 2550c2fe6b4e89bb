// `quire eval perplexity`: what a KV cache's codecs, and giving tokens up, cost in the quality of
// predictions.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_eviction_flags.h"
#include "cli/eval_eviction_report.h"
#include "cli/eval_flags.h"
#include "cli/markdown_table.h"
#include "cli/progress_bar.h"
#include "eval/perplexity.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

std::string Percent(double share) {
  return fmt::format("{:+.3f} %", 100 * share);
}

std::string AsTable(const eval::PerplexityReport& report) {
  std::vector<std::string> header = kCodecColumns;
  header.insert(header.end(),
                {"perplexity", "rise", "+-", "mean KL", "99 % KL", "same top token", "tokens/s"});
  MarkdownTable table(std::move(header));
  for (const eval::VariantScore& score : report.scores) {
    std::vector<std::string> row = CodecCells(score.variant, score.cost);
    row.push_back(fmt::format("{:.4f}", score.perplexity));
    row.push_back(Percent(score.rise));
    row.push_back(fmt::format("{:.3f}", 100 * score.rise_error));
    row.push_back(fmt::format("{:.6f}", score.kl_mean));
    row.push_back(fmt::format("{:.6f}", score.kl_p99));
    row.push_back(fmt::format("{:.2f} %", 100 * score.top1_agreement));
    row.push_back(fmt::format("{:.0f}", score.tokens_per_s));
    table.AddRow(std::move(row));
  }
  return table.Text();
}

class EvalPerplexityCommand : public Command {
 public:
  std::string_view name() const override { return "eval perplexity"; }
  std::string_view summary() const override {
    return "Perplexity of a text, for each KV codec and eviction policy.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("FILE", &path_, "The text; - reads stdin.").Required();
    flags.Add("max-bytes", &max_bytes_, "Evaluate the first so many bytes; 0: all.")
        .Unit("bytes")
        .AtLeast(0);
    flags.Group("Windows");
    flags
        .Add("context", &context_,
             "Tokens of a window, its BOS included; by default 512, or the model's context.")
        .Unit("tokens")
        .Range(2, 1 << 24);
    flags
        .Add("stride", &stride_,
             "Tokens of text from one window to the next; by default half the context.")
        .Unit("tokens")
        .AtLeast(1);
    flags
        .Add("min-context", &min_context_,
             "Score a token only with so many tokens of text before it in its window.")
        .Unit("tokens")
        .AtLeast(0);
    flags
        .Add("prompt", &prompt_,
             "With --kv-eviction: tokens of a window, its BOS included, that are computed before "
             "any is given up. The others are scored one by one; by default half the context.")
        .Unit("tokens")
        .AtLeast(1);
    eval_.Declare(flags);
    eviction_.Declare(flags);
    flags.Example("quire eval perplexity models/val.txt --kv-cache-dtype f16,bf16",
                  "The bundled model's perplexity on held-out prose with f32, f16 and bf16");
    flags.Example("quire eval perplexity text.txt --context 512 --stride 512 --min-context 256",
                  "The windows of llama.cpp's perplexity at -c 512");
    flags.Example(
        "quire eval perplexity models/val.txt --max-bytes 20000 --kv-eviction h2o,snapkv "
        "--kv-budget 0.2,0.5",
        "Two eviction policies at two budgets against the full cache");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::EvictionVariant> evictions,
                           eviction_.Variants());
    QUIRE_RETURN_IF_ERROR(CheckMode(evictions));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::KvVariant> codecs, eval_.Codecs());
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(path_));
    QUIRE_ASSIGN_OR_RETURN(text, FirstBytes(std::move(text), max_bytes_, path_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running, eval_.LoadModel(context.terminal));
    const std::vector<TokenId> tokens = running.model->tokenizer().Encode(text);
    const int window = context_.value_or(std::min(512, running.model->config().context_length));
    if (evictions.empty()) return CompareCodecs(window, tokens, running, context);
    eval::EvictionPerplexityOptions options;
    options.context = window;
    options.prompt = prompt_.value_or(std::max(window / 2, 1));
    options.stride = stride_.value_or(std::max(window - options.prompt, 1));
    options.codecs = codecs;
    options.evictions = evictions;
    return CompareEvictions(options, tokens, running, context);
  }

 private:
  Status CheckMode(const std::vector<eval::EvictionVariant>& evictions) const {
    if (evictions.empty() && prompt_) {
      return Error{ErrorKind::kUsage,
                   "--prompt is for windows that give tokens up; name a policy with --kv-eviction, "
                   "or leave it out",
                   "prompt"};
    }
    if (!evictions.empty() && min_context_ > 0) {
      return Error{
          ErrorKind::kUsage,
          "--min-context is for codecs alone; with --kv-eviction, --prompt says what comes "
          "before the scored tokens",
          "min-context"};
    }
    return Ok{};
  }

  Status CompareCodecs(int window, std::span<const TokenId> tokens, const RunningModel& running,
                       const CommandContext& context) {
    eval::PerplexityOptions options;
    QUIRE_ASSIGN_OR_RETURN(options.variants, eval_.Variants());
    QUIRE_ASSIGN_OR_RETURN(options.reference, eval_.Reference());
    options.context = window;
    options.stride = stride_.value_or(std::max(window / 2, 1));
    options.min_context = min_context_;
    QUIRE_ASSIGN_OR_RETURN(const eval::PerplexityReport report,
                           Measure(running, tokens, options, context.terminal));
    QUIRE_RETURN_IF_ERROR(Plot(report));
    if (context.json) return WriteJson(AsJson(report, options, running));
    return WriteOut(AsTable(report) + "\n" + Method(report, options));
  }

  Status CompareEvictions(const eval::EvictionPerplexityOptions& options,
                          std::span<const TokenId> tokens, const RunningModel& running,
                          const CommandContext& context) {
    std::optional<ProgressBar> bar;
    QUIRE_ASSIGN_OR_RETURN(
        const eval::EvictionPerplexityReport report,
        eval::MeasureEvictionPerplexity(
            *running.model, tokens, options, *running.team, [&](int64_t done, int64_t total) {
              if (!bar) {
                bar.emplace(
                    context.terminal,
                    ProgressBarOptions{.label = "perplexity", .total = total, .unit = "tokens"});
              }
              bar->Update(done, done);
            }));
    QUIRE_RETURN_IF_ERROR(eval_.WritePlot({.title = "Perplexity against the tokens that are kept",
                                           .x_axis = "tokens kept of a sequence",
                                           .y_axis = "perplexity"},
                                          EvictionPoints(report)));
    if (!context.json) {
      return WriteOut(EvictionTable(report) + "\n" + EvictionMethod(report, options));
    }
    return WriteJson({{"model", running.model->name()},
                      {"text", path_},
                      {"text_tokens", report.text_tokens},
                      {"scored_tokens", report.scored_tokens},
                      {"windows", report.windows},
                      {"context", options.context},
                      {"stride", options.stride},
                      {"prompt", options.prompt},
                      {"bos", report.bos},
                      {"policies", EvictionScoresAsJson(report)}});
  }

  static Result<eval::PerplexityReport> Measure(const RunningModel& running,
                                                std::span<const TokenId> tokens,
                                                const eval::PerplexityOptions& options,
                                                const Terminal& terminal) {
    std::optional<ProgressBar> bar;
    return eval::MeasurePerplexity(
        *running.model, tokens, options, *running.team,
        [&](const eval::PerplexityProgress& progress) {
          if (!bar) {
            bar.emplace(terminal,
                        ProgressBarOptions{
                            .label = "perplexity", .total = progress.total, .unit = "windows"});
          }
          bar->Update(progress.done, progress.tokens);
        });
  }

  static std::string Method(const eval::PerplexityReport& report,
                            const eval::PerplexityOptions& options) {
    return fmt::format(
        "{} of {} tokens scored in {} windows of {}, stride {}, {} text tokens before a scored "
        "one at least; {}.\n",
        report.scored_tokens, report.text_tokens, report.windows, options.context, options.stride,
        options.min_context,
        report.bos ? "every window begins with BOS" : "no BOS, as the tokenizer adds none");
  }

  Status Plot(const eval::PerplexityReport& report) const {
    std::vector<PlotPoint> points;
    for (const eval::VariantScore& score : report.scores) {
      points.push_back({score.variant.name, score.cost.bytes_per_token, score.kl_mean});
    }
    return eval_.WritePlot({.title = "Distance from f32 against KV memory",
                            .x_axis = "KV bytes per token",
                            .y_axis = "mean KL divergence from f32, nats"},
                           points);
  }

  json::object AsJson(const eval::PerplexityReport& report, const eval::PerplexityOptions& options,
                      const RunningModel& running) const {
    json::array codecs;
    for (const eval::VariantScore& score : report.scores) {
      json::object codec = CodecAsJson(score.variant, score.cost);
      codec["perplexity"] = score.perplexity;
      codec["mean_nll"] = score.mean_nll;
      codec["rise"] = score.rise;
      codec["rise_error"] = score.rise_error;
      codec["kl_mean"] = score.kl_mean;
      codec["kl_p99"] = score.kl_p99;
      codec["top1_agreement"] = score.top1_agreement;
      codec["seconds"] = score.seconds;
      codec["tokens_per_second"] = score.tokens_per_s;
      codecs.push_back(std::move(codec));
    }
    return {{"model", running.model->name()},
            {"text", path_},
            {"text_tokens", report.text_tokens},
            {"scored_tokens", report.scored_tokens},
            {"windows", report.windows},
            {"context", options.context},
            {"stride", options.stride},
            {"min_context", options.min_context},
            {"bos", report.bos},
            {"codecs", std::move(codecs)}};
  }

  EvalFlags eval_;
  EvalEvictionFlags eviction_;
  std::string path_;
  int64_t max_bytes_ = 0;
  std::optional<int> context_;
  std::optional<int> prompt_;
  std::optional<int> stride_;
  int min_context_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeEvalPerplexityCommand() {
  return std::make_unique<EvalPerplexityCommand>();
}

}  // namespace quire::cli
