#include "server/openai_format.h"

#include <utility>
#include <vector>

#include "server/chat_deltas.h"
#include "server/http_error.h"
#include "server/openai_logprobs.h"
#include "text/utf8.h"

namespace quire::server {
namespace json = boost::json;
namespace {

json::value StopReasonValue(const engine::StopReason& reason) {
  if (const TokenId* token = std::get_if<TokenId>(&reason)) return *token;
  if (const std::string* text = std::get_if<std::string>(&reason)) return json::string(*text);
  return nullptr;
}

json::object UsageBody(const engine::Usage& usage) {
  json::object body{{"prompt_tokens", usage.prompt_tokens},
                    {"completion_tokens", usage.completion_tokens},
                    {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                    {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.kv_tokens_kept) body["kv_tokens_kept"] = *usage.kv_tokens_kept;
  if (usage.accepted_draft_tokens + usage.rejected_draft_tokens > 0) {
    body["completion_tokens_details"] = {
        {"accepted_prediction_tokens", usage.accepted_draft_tokens},
        {"rejected_prediction_tokens", usage.rejected_draft_tokens}};
  }
  return body;
}

// The tool calls of a whole answer, and what is left of its text.
struct ChatMessage {
  std::string content;
  json::array calls;

  void Add(const std::vector<ToolDelta>& deltas) {
    for (const ToolDelta& delta : deltas) {
      if (const auto* text = std::get_if<ContentDelta>(&delta)) {
        content += text->text;
      } else if (const auto* start = std::get_if<CallStartDelta>(&delta)) {
        calls.push_back({{"id", start->id},
                         {"type", "function"},
                         {"function", {{"name", start->name}, {"arguments", ""}}}});
      } else {
        const auto& more = std::get<ArgumentsDelta>(delta);
        json::object& function = calls.back().as_object()["function"].as_object();
        function["arguments"].as_string().append(more.text);
      }
    }
  }

  json::object Body() && {
    json::object message{{"role", "assistant"}, {"content", content}};
    if (calls.empty()) return message;
    if (content.empty()) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
    return message;
  }
};

class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(ResponseHeader header, const ApiRequest& request, const text::Tokenizer& tokenizer)
      : header_(std::move(header)),
        request_(request),
        tokenizer_(tokenizer),
        chat_(request.endpoint == Endpoint::kChatCompletions),
        streams_(request.prompt_count() * static_cast<size_t>(request.n)),
        prompt_logprobs_(request.prompt_count()) {}

  json::object Whole(std::span<const engine::Completion> completions) override;
  std::string Begin() override { return ""; }
  std::string Update(int choice, const engine::SequenceUpdate& update) override;
  std::string End() override;
  std::string Failure(const Error& error) override { return SseEvent(FormatError(error)); }

 private:
  // What is known of a choice while it is streamed.
  struct ChoiceStream {
    bool begun = false;
    int64_t text_offset = 0;           // in characters, of the next token in the text
    std::optional<ChatDeltas> deltas;  // chat
  };

  std::string_view FinishName(sched::FinishReason reason, int calls) const {
    if (calls > 0 && reason == sched::FinishReason::kStop) return "tool_calls";
    return FinishReasonName(reason);
  }
  std::string EchoText(int choice) const {
    return request_.echo ? request_.echoes[choice / request_.n].text : std::string();
  }

  using PromptEntries = std::vector<std::optional<engine::TokenLogprobs>>;

  json::object ChoiceBody(const engine::Choice& choice, int index,
                          const PromptEntries& prompt) const;
  // vLLM's: in every choice of a completion, beside the choices of a chat.
  json::value PromptIds(int choice) const {
    return json::value_from(request_.prompt_ids[choice / request_.n]);
  }
  json::object Chunk(json::array choices) const;
  json::object ChunkChoice(int choice, json::object delta) const;
  std::string SendDeltas(int choice, const std::vector<ToolDelta>& deltas) const;
  json::value Logprobs(std::span<const engine::TokenLogprobs> entries, int64_t& offset) const;
  json::value FirstLogprobs(int choice, std::span<const engine::TokenLogprobs> entries,
                            const PromptEntries& prompt, int64_t& offset) const;

  ResponseHeader header_;
  const ApiRequest& request_;
  const text::Tokenizer& tokenizer_;
  bool chat_;
  std::vector<ChoiceStream> streams_;           // by choice
  std::vector<PromptEntries> prompt_logprobs_;  // [prompts] while streaming
  engine::Usage usage_;                         // of choices that ended while streaming
};

json::value OpenAiFormat::Logprobs(std::span<const engine::TokenLogprobs> entries,
                                   int64_t& offset) const {
  if (!request_.sampling.logprobs) return nullptr;
  if (chat_) return ChatLogprobs(entries, tokenizer_);
  return CompletionLogprobs(entries, tokenizer_, offset);
}

// Of what comes first: behind the prompt's own, where that is echoed.
json::value OpenAiFormat::FirstLogprobs(int choice, std::span<const engine::TokenLogprobs> entries,
                                        const PromptEntries& prompt, int64_t& offset) const {
  if (!request_.echoes_logprobs()) return Logprobs(entries, offset);
  const Echo& echo = request_.echoes[choice / request_.n];
  json::object logprobs = EchoLogprobs(echo.first_token, prompt, tokenizer_, offset);
  AppendLogprobs(logprobs, CompletionLogprobs(entries, tokenizer_, offset));
  return logprobs;
}

json::object OpenAiFormat::ChoiceBody(const engine::Choice& choice, int index,
                                      const PromptEntries& prompt) const {
  json::object body{{"index", index}};
  int calls = 0;
  const std::string echo = EchoText(index);
  if (chat_) {
    ChatDeltas deltas(request_, index);
    ChatMessage message;
    message.Add(deltas.Add(choice.text, choice.finish));
    calls = deltas.calls();
    body["message"] = std::move(message).Body();
  } else {
    body["text"] = echo + choice.text;
  }
  int64_t offset = text::CountCharacters(echo);
  body["logprobs"] = FirstLogprobs(index, choice.logprobs, prompt, offset);
  body["finish_reason"] = FinishName(choice.finish, calls);
  body["stop_reason"] = StopReasonValue(choice.stop_reason);
  if (request_.return_token_ids) {
    body["token_ids"] = json::value_from(choice.tokens);
    if (!chat_) body["prompt_token_ids"] = PromptIds(index);
  }
  if (request_.tells_prompt_logprobs) body["prompt_logprobs"] = PromptLogprobs(prompt);
  return body;
}

json::object OpenAiFormat::Whole(std::span<const engine::Completion> completions) {
  json::array choices;
  engine::Usage usage;
  for (const engine::Completion& completion : completions) {
    for (const engine::Choice& choice : completion.choices) {
      choices.push_back(
          ChoiceBody(choice, static_cast<int>(choices.size()), completion.prompt_logprobs));
    }
    usage.prompt_tokens += completion.usage.prompt_tokens;
    usage.cached_tokens += completion.usage.cached_tokens;
    usage.AddSequence(completion.usage);
  }
  json::object body{{"id", header_.id},
                    {"object", chat_ ? "chat.completion" : "text_completion"},
                    {"created", header_.created},
                    {"model", header_.model},
                    {"choices", std::move(choices)},
                    {"usage", UsageBody(usage)}};
  if (chat_ && request_.return_token_ids) body["prompt_token_ids"] = PromptIds(0);
  return body;
}

json::object OpenAiFormat::Chunk(json::array choices) const {
  json::object chunk{{"id", header_.id},
                     {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                     {"created", header_.created},
                     {"model", header_.model},
                     {"choices", std::move(choices)}};
  if (request_.include_usage) chunk["usage"] = nullptr;  // the last one has it
  return chunk;
}

json::object OpenAiFormat::ChunkChoice(int choice, json::object delta) const {
  return {{"index", choice},
          {"delta", std::move(delta)},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

// Each delta an event: clients read one call, or one piece of text, at a time.
std::string OpenAiFormat::SendDeltas(int choice, const std::vector<ToolDelta>& deltas) const {
  std::string events;
  for (const ToolDelta& delta : deltas) {
    json::object body;
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      body["content"] = text->text;
    } else if (const auto* start = std::get_if<CallStartDelta>(&delta)) {
      body["tool_calls"] =
          json::array{json::object{{"index", start->index},
                                   {"id", start->id},
                                   {"type", "function"},
                                   {"function", {{"name", start->name}, {"arguments", ""}}}}};
    } else {
      const auto& more = std::get<ArgumentsDelta>(delta);
      body["tool_calls"] = json::array{
          json::object{{"index", more.index}, {"function", {{"arguments", more.text}}}}};
    }
    events += SseEvent(Chunk({ChunkChoice(choice, std::move(body))}));
  }
  return events;
}

std::string OpenAiFormat::Update(int choice, const engine::SequenceUpdate& update) {
  // Log probabilities of the prompt come first, with the request's first sequence.
  PromptEntries& prompt = prompt_logprobs_[choice / request_.n];
  prompt.insert(prompt.end(), update.prompt_logprobs.begin(), update.prompt_logprobs.end());
  if (!update.prompt_logprobs.empty() && update.tokens.empty() && !update.finish) return "";
  ChoiceStream& stream = streams_[choice];
  const bool first = !stream.begun;
  std::string events;
  std::string echo;
  if (first) {
    stream.begun = true;
    echo = EchoText(choice);
    stream.text_offset = text::CountCharacters(echo);
    if (chat_) {
      events += SseEvent(Chunk({ChunkChoice(choice, {{"role", "assistant"}, {"content", ""}})}));
      stream.deltas.emplace(request_, choice);
    }
  }
  int calls = 0;
  std::string text = echo + update.text;
  if (stream.deltas && stream.deltas->reads_calls()) {
    events += SendDeltas(choice, stream.deltas->Add(update.text, update.finish));
    calls = stream.deltas->calls();
    text.clear();
  }
  const bool has_news = !text.empty() || !update.logprobs.empty() || update.finish ||
                        (request_.return_token_ids && !update.tokens.empty()) ||
                        (first && (request_.return_token_ids || !prompt.empty()));
  if (!has_news) return events;

  json::object body{{"index", choice}};
  if (chat_) {
    body["delta"] = text.empty() ? json::object() : json::object{{"content", text}};
  } else {
    body["text"] = text;
  }
  body["logprobs"] = nullptr;
  if (first && request_.echoes_logprobs()) {
    body["logprobs"] = FirstLogprobs(choice, update.logprobs, prompt, stream.text_offset);
  } else if (!update.logprobs.empty()) {
    body["logprobs"] = Logprobs(update.logprobs, stream.text_offset);
  }
  if (first && request_.tells_prompt_logprobs) body["prompt_logprobs"] = PromptLogprobs(prompt);
  body["finish_reason"] = nullptr;
  if (update.finish) {
    body["finish_reason"] = FinishName(*update.finish, calls);
    body["stop_reason"] = StopReasonValue(update.stop_reason);
    if (choice % request_.n == 0) {
      usage_.prompt_tokens += update.usage.prompt_tokens;
      usage_.cached_tokens += update.usage.cached_tokens;
    }
    usage_.AddSequence(update.usage);
  }
  if (request_.return_token_ids) {
    body["token_ids"] = json::value_from(update.tokens);
    if (first && !chat_) body["prompt_token_ids"] = PromptIds(choice);
  }
  json::object chunk = Chunk({std::move(body)});
  if (first && chat_ && request_.return_token_ids) chunk["prompt_token_ids"] = PromptIds(0);
  return events + SseEvent(chunk);
}

std::string OpenAiFormat::End() {
  std::string events;
  if (request_.include_usage) {
    json::object chunk = Chunk({});
    chunk["usage"] = UsageBody(usage_);
    events += SseEvent(chunk);
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace

std::string SseEvent(const json::object& data) {
  return "data: " + json::serialize(data) + "\n\n";
}

std::string NamedSseEvent(std::string_view name, const json::object& data) {
  return fmt::format("event: {}\n{}", name, SseEvent(data));
}

std::string_view FinishReasonName(sched::FinishReason reason) {
  switch (reason) {
    case sched::FinishReason::kStop:
      return "stop";
    case sched::FinishReason::kLength:
      return "length";
    case sched::FinishReason::kCancelled:
      return "abort";
    case sched::FinishReason::kError:
      return "error";
  }
  return "error";
}

int HttpStatus(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kInvalid:
    case ErrorKind::kUnsupported:
      return 400;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kExhausted:
      return 429;
    case ErrorKind::kIo:
      return 500;
    case ErrorKind::kContradiction:
      return 422;
  }
  return 500;
}

json::object FormatError(const Error& error) {
  return ErrorBody(
      {.status = HttpStatus(error.kind), .message = error.message, .param = error.param});
}

std::unique_ptr<AnswerFormat> MakeOpenAiFormat(ResponseHeader header, const ApiRequest& request,
                                               const text::Tokenizer& tokenizer) {
  return std::make_unique<OpenAiFormat>(std::move(header), request, tokenizer);
}

}  // namespace quire::server
