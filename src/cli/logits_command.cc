// `quire logits`: raw logits of every position, for comparing engines.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/progress_bar.h"
#include "engine/sequence_evaluator.h"

namespace quire::cli {
namespace {

// One sequence of token ids per line, separated by spaces; empty lines are skipped.
Result<std::vector<std::vector<TokenId>>> ParseTokenLists(const std::string& text,
                                                          const std::string& path) {
  std::vector<std::vector<TokenId>> lists(1);
  int line = 1;
  for (const char* at = text.data(); at != text.data() + text.size();) {
    if (*at == '\n') {
      ++line;
      if (!lists.back().empty()) lists.emplace_back();
      ++at;
    } else if (*at == ' ' || *at == '\t' || *at == '\r') {
      ++at;
    } else {
      TokenId token = 0;
      const auto [end, code] = std::from_chars(at, text.data() + text.size(), token);
      if (code != std::errc()) {
        return MakeError(ErrorKind::kInvalid,
                         "line {} of '{}' holds something that is no token id; write ids separated "
                         "by spaces, a sequence per line",
                         line, path);
      }
      lists.back().push_back(token);
      at = end;
    }
  }
  if (lists.back().empty()) lists.pop_back();
  return lists;
}

class LogitsCommand : public Command {
 public:
  std::string_view name() const override { return "logits"; }
  std::string_view summary() const override {
    return "Writes the raw logits of every position of given tokens, to compare engines.";
  }
  void Declare(base::FlagSet& flags) override {
    flags.Positional("MODEL", &model_path_, "GGUF file or Hugging Face directory.").Required();
    flags.Positional("TOKENS", &tokens_path_, "Token ids, a sequence per line; - reads stdin.")
        .Required();
    flags
        .Positional("OUT", &out_path_,
                    "Receives f32 logits [position, vocabulary], sequences one after another.")
        .Required();
    engine_.DeclareCompute(flags);
    flags.Add("chunk", &chunk_, "Tokens per forward pass; the bits do not depend on it.")
        .Unit("tokens")
        .Range(1, 8192);
    flags.Example("quire logits model.gguf --kv-cache-dtype f32 tokens.txt logits.bin",
                  "Logits with an exact KV cache");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(tokens_path_));
    QUIRE_ASSIGN_OR_RETURN(const auto lists, ParseTokenLists(text, tokens_path_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running,
                           engine_.LoadModel(model_path_, context.terminal));
    engine::EvaluatorOptions options;
    QUIRE_ASSIGN_OR_RETURN(options.kv_format, engine_.kv_format());
    options.chunk = chunk_;
    int64_t positions = 0;
    for (const auto& list : lists) {
      options.max_tokens = std::max(options.max_tokens, static_cast<int>(list.size()));
      positions += static_cast<int64_t>(list.size());
    }
    QUIRE_ASSIGN_OR_RETURN(const auto evaluator, engine::SequenceEvaluator::Create(
                                                     *running.model, options, *running.team));
    std::ofstream out(out_path_, std::ios::binary);
    ProgressBar bar(context.terminal, {.label = "logits", .total = positions, .unit = "tokens"});
    int64_t done = 0;
    for (const auto& list : lists) {
      QUIRE_RETURN_IF_ERROR(evaluator->Evaluate(list, [&](int, std::span<const float> logits) {
        out.write(reinterpret_cast<const char*>(logits.data()),
                  static_cast<std::streamsize>(logits.size_bytes()));
        ++done;
        bar.Update(done, done);
      }));
    }
    out.flush();
    if (!out) return MakeError(ErrorKind::kIo, "cannot write '{}'", out_path_);
    const int vocab_size = running.model->config().vocab_size;
    if (context.json) {
      return WriteJson({{"sequences", lists.size()},
                        {"positions", positions},
                        {"vocab_size", vocab_size},
                        {"output", out_path_}});
    }
    return WriteOut(fmt::format("{} sequences, {} positions, {} logits each: {}\n", lists.size(),
                                positions, vocab_size, out_path_));
  }

 private:
  EngineFlags engine_;
  std::string model_path_;
  std::string tokens_path_;
  std::string out_path_;
  int chunk_ = 256;
};

}  // namespace

std::unique_ptr<Command> MakeLogitsCommand() {
  return std::make_unique<LogitsCommand>();
}

}  // namespace quire::cli
