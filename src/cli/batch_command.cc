// `quire batch`: OpenAI batch files, many sequences per step.
#include "base/clock.h"
#include "cli/batch_job.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/progress_bar.h"

namespace quire::cli {
namespace {

class BatchCommand : public Command {
 public:
  std::string_view name() const override { return "batch"; }
  std::string_view summary() const override {
    return "Answers a file of requests, many at a time.";
  }
  void Declare(base::FlagSet& flags) override {
    flags
        .Positional("INPUT", &input_,
                    "OpenAI batch file: a JSON object per line with custom_id, url "
                    "(/v1/completions or /v1/chat/completions) and body.")
        .Required();
    flags
        .Positional("OUTPUT", &output_,
                    "Receives a line per request; if it exists, the job resumes where it ended.")
        .Required();
    engine_.DeclareModel(flags);
    engine_.DeclareCompute(flags);
    engine_.DeclareServing(flags);
    flags.Example("quire batch requests.jsonl answers.jsonl", "Answers all of a file's requests");
    flags.Example("quire batch -m model.gguf --max-num-seqs 16 requests.jsonl answers.jsonl",
                  "At most 16 sequences at a time");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<BatchJob> job, BatchJob::Open(input_, output_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running, engine_.StartEngine(context.terminal));
    base::Stopwatch watch;
    {
      ProgressBar bar(context.terminal,
                      {.label = "batch", .total = job->totals().lines, .unit = "requests"});
      QUIRE_RETURN_IF_ERROR(job->Run(*running.engine, [&](const BatchTotals& totals) {
        bar.Update(totals.done(), totals.tokens_computed);
      }));
    }
    return Report(context, job->totals(), watch.Lap());
  }

 private:
  Status Report(const CommandContext& context, const BatchTotals& totals, double seconds) const {
    const double rate = static_cast<double>(totals.completion_tokens) / seconds;
    if (context.json) {
      return WriteJson({{"requests", totals.lines},
                        {"succeeded", totals.succeeded},
                        {"failed", totals.failed},
                        {"resumed", totals.resumed},
                        {"prompt_tokens", totals.prompt_tokens},
                        {"completion_tokens", totals.completion_tokens},
                        {"seconds", seconds},
                        {"completion_tokens_per_second", rate},
                        {"output", output_}});
    }
    std::string text = fmt::format("{} answered, {} failed", totals.succeeded, totals.failed);
    if (totals.resumed > 0) text += fmt::format(", {} answered before", totals.resumed);
    text += fmt::format("; {} prompt and {} new tokens in {:.1f} s ({:.1f} new tokens/s): {}\n",
                        totals.prompt_tokens, totals.completion_tokens, seconds, rate, output_);
    return WriteOut(text);
  }

  EngineFlags engine_;
  std::string input_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> MakeBatchCommand() {
  return std::make_unique<BatchCommand>();
}

}  // namespace quire::cli
