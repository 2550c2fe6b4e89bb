// `quire run`: one prompt, or a chat on the terminal.
#include <csignal>
#include <iostream>
#include <string>

#include <unistd.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/sampling_flags.h"
#include "engine/completion.h"
#include "server/openai_format.h"
#include "server/openai_prompts.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

// Ctrl-C ends the answer under way; a second one, or one at the prompt, ends the program.
volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) {
  if (interrupted) ::_exit(130);
  interrupted = 1;
}

struct Answer {
  engine::Completion completion;
  double first_token_s = 0;
  double total_s = 0;
};

class RunCommand : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override {
    return "Continues a prompt, or chats if the model has a chat template.";
  }
  void Declare(base::FlagSet& flags) override {
    flags.Positional("PROMPT", &prompt_,
                     "What to answer; without it a chat on the terminal, or stdin.");
    engine_.DeclareModel(flags);
    flags.Add("raw", &raw_, "Continue the prompt as it is, without the chat template.");
    flags.Add("system", &system_, "What the chat template's system message says.").Metavar("TEXT");
    flags.Add("stats", &stats_, "Tokens, times and KV memory on stderr at the end.");
    sampling_.Declare(flags);
    engine_.DeclareCompute(flags);
    engine_.DeclareServing(flags);
    flags.Example("quire run \"Once upon a time\"", "Continues the prompt with the bundled model");
    flags.Example("quire run -m model.gguf", "Chats, if the model has a chat template");
    flags.Example("quire run --raw --temperature 0 --max-tokens 50 \"The sea\"",
                  "The same text every time");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(running_, engine_.StartEngine(context.terminal));
    // The bundled model has a chat template, but never saw a chat in training.
    const bool templated =
        running_.model->chat_template().has_value() && !raw_ && engine_.model_named();
    if (!prompt_ && context.terminal.stdin_is_terminal()) {
      if (templated && !context.json) return Chat(context);
      return Error{ErrorKind::kUsage,
                   "there is no prompt to continue; give one as an argument or on stdin", "PROMPT"};
    }
    std::string text;
    if (prompt_) {
      text = *prompt_;
    } else {
      QUIRE_ASSIGN_OR_RETURN(text, ReadText("-"));
    }
    server::ApiRequest api = BaseRequest();
    if (templated) {
      AddMessage("user", text);
      api.endpoint = server::Endpoint::kChatCompletions;
      api.messages = messages_;
    } else {
      api.prompts.emplace_back(text);
    }
    if (text.empty()) return Error{ErrorKind::kUsage, "the prompt is empty", "PROMPT"};
    const std::string_view lead = templated ? std::string_view() : text;
    QUIRE_ASSIGN_OR_RETURN(const Answer answer, Generate(api, lead, context));
    if (context.json) return WriteJson(ToJson(answer));
    QUIRE_RETURN_IF_ERROR(WriteOut("\n"));
    if (stats_) PrintStats(answer);
    return Ok{};
  }

 private:
  server::ApiRequest BaseRequest() const {
    server::ApiRequest api;
    // Where the model's makers say nothing, a person reading along is better served by less
    // randomness than the API's default.
    sched::SamplingParams defaults = running_.model->sampling_defaults();
    const model::GenerationDefaults& makers = running_.model->files().generation_defaults();
    if (!makers.temperature && makers.do_sample != false) defaults.temperature = 0.7f;
    if (!makers.top_k) defaults.top_k = 40;
    api.sampling = sampling_.Params(defaults);
    api.template_arguments["add_generation_prompt"] = true;
    api.seed = engine_.seed();
    return api;
  }

  void AddMessage(std::string_view role, std::string_view content) {
    if (messages_.empty() && !system_.empty()) {
      messages_.push_back({{"role", "system"}, {"content", system_}});
    }
    messages_.push_back({{"role", role}, {"content", content}});
  }

  // Streams `lead` and the answer to stdout unless the whole is wanted as JSON.
  Result<Answer> Generate(server::ApiRequest api, std::string_view lead,
                          const CommandContext& context) {
    engine::Engine& engine = *running_.engine;
    QUIRE_ASSIGN_OR_RETURN(std::vector<sched::Request> requests,
                           server::BuildRequests(api, *running_.model,
                                                 {.max_model_len = engine.max_model_len(),
                                                  .seed = engine.seed(),
                                                  .eviction = engine.eviction()}));
    Answer answer;
    engine::CompletionBuilder builder(requests.front());
    base::Stopwatch watch;
    double elapsed = 0;
    Status written = Ok{};
    const engine::UpdateSink sink = [&](const engine::SequenceUpdate& update) {
      if (answer.first_token_s == 0) answer.first_token_s = elapsed += watch.Lap();
      if (!context.json && written.ok()) written = WriteOut(update.text);
      builder.Add(update);
    };
    QUIRE_ASSIGN_OR_RETURN(const RequestId id, engine.Submit(std::move(requests.front())));
    if (!context.json) written = WriteOut(lead);
    while (!interrupted && written.ok() && engine.Step(sink)) {
    }
    QUIRE_RETURN_IF_ERROR(written);
    answer.total_s = elapsed + watch.Lap();
    if (!builder.done()) {
      engine.Cancel(id);
      engine::SequenceUpdate cut;
      cut.request = id;
      cut.finish = sched::FinishReason::kCancelled;
      builder.Add(cut);
    }
    answer.completion = builder.Take();
    if (const auto& error = answer.completion.choices[0].error) return *error;
    return answer;
  }

  Status Chat(const CommandContext& context) {
    const Terminal& terminal = context.terminal;
    // Without SA_RESTART: Ctrl-C at the prompt ends the reading, and with it the program.
    struct sigaction action = {};
    action.sa_handler = OnInterrupt;
    ::sigaction(SIGINT, &action, nullptr);
    QUIRE_RETURN_IF_ERROR(WriteOut(terminal.Out(
        Style::kDim,
        running_.model->name() + ": /reset forgets, /exit ends, Ctrl-C stops an answer\n")));
    for (;;) {
      interrupted = 0;
      QUIRE_RETURN_IF_ERROR(WriteOut(terminal.Out(Style::kBold, "> ")));
      std::string line;
      if (!std::getline(std::cin, line) || line == "/exit") return WriteOut("\n");
      if (line.empty()) continue;
      if (line == "/reset") {
        messages_.clear();
        continue;
      }
      interrupted = 0;
      AddMessage("user", line);
      server::ApiRequest api = BaseRequest();
      api.endpoint = server::Endpoint::kChatCompletions;
      api.messages = messages_;
      Result<Answer> answer = Generate(api, "", context);
      if (!answer.ok()) {
        messages_.pop_back();
        QUIRE_RETURN_IF_ERROR(WriteOut(terminal.Out(Style::kRed, answer.error().message) +
                                       " (/reset forgets what was said)\n"));
        continue;
      }
      QUIRE_RETURN_IF_ERROR(WriteOut("\n"));
      AddMessage("assistant", answer->completion.choices[0].text);
      if (stats_) PrintStats(*answer);
    }
  }

  json::object ToJson(const Answer& answer) const {
    const engine::Choice& choice = answer.completion.choices[0];
    const engine::Usage& usage = answer.completion.usage;
    return {{"model", running_.model->name()},
            {"text", choice.text},
            {"token_ids", json::value_from(choice.tokens)},
            {"finish_reason", server::FinishReasonName(choice.finish)},
            {"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"draft_tokens", usage.accepted_draft_tokens + usage.rejected_draft_tokens},
            {"draft_tokens_accepted", usage.accepted_draft_tokens},
            {"time_to_first_token_s", answer.first_token_s},
            {"seconds", answer.total_s},
            {"decode_tokens_per_second", DecodeRate(answer)}};
  }

  // Tokens per second after the first one, whose time is the prompt's.
  static double DecodeRate(const Answer& answer) {
    const double seconds = answer.total_s - answer.first_token_s;
    const int tokens = answer.completion.usage.completion_tokens - 1;
    return tokens > 0 && seconds > 0 ? tokens / seconds : 0;
  }

  void PrintStats(const Answer& answer) const {
    const engine::Usage& usage = answer.completion.usage;
    const kvstore::KvStore& store = running_.engine->store();
    fmt::print(
        stderr,
        "prompt {} tokens ({} from the cache) in {:.3f} s; {} new tokens at {:.1f} tokens/s; "
        "KV {}: {:.0f} bytes per token, {} hold up to {} tokens; sequences up to {} tokens\n",
        usage.prompt_tokens, usage.cached_tokens, answer.first_token_s, usage.completion_tokens,
        DecodeRate(answer), kvstore::Name(store.layout().format()),
        store.layout().bytes_per_token(),
        base::FormatBytes(static_cast<int64_t>(store.arena_bytes())),
        store.layout().LongestSequence(
            store.frames_total(), running_.engine->scheduler().options().max_num_batched_tokens),
        running_.engine->max_model_len());
    const int drafted = usage.accepted_draft_tokens + usage.rejected_draft_tokens;
    if (drafted == 0) return;
    fmt::print(stderr, "{} of {} drafted tokens were right ({:.0f} %)\n",
               usage.accepted_draft_tokens, drafted, 100.0 * usage.accepted_draft_tokens / drafted);
  }

  EngineFlags engine_;
  SamplingFlags sampling_;
  std::optional<std::string> prompt_;
  bool raw_ = false;
  bool stats_ = false;
  std::string system_;
  RunningModel running_;
  json::array messages_;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand() {
  return std::make_unique<RunCommand>();
}

}  // namespace quire::cli
