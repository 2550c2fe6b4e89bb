#include "server/openai_response.h"

#include <algorithm>

#include "text/utf8.h"

namespace quire::server {
namespace json = boost::json;
namespace {

// A token's bytes as text; bytes that are no UTF-8 by themselves show as U+FFFD.
std::string TokenText(const text::Tokenizer& tokenizer, TokenId token) {
  return text::ToValidUtf8(tokenizer.TokenBytes(token));
}

int64_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

json::array TokenBytes(const text::Tokenizer& tokenizer, TokenId token) {
  json::array bytes;
  for (const char byte : tokenizer.TokenBytes(token)) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

// Completions: parallel lists.
json::object CompletionLogprobs(const engine::Choice& choice, const text::Tokenizer& tokenizer) {
  json::array tokens, token_logprobs, top_logprobs, text_offset;
  int64_t offset = 0;  // in characters
  for (const engine::TokenLogprobs& entry : choice.logprobs) {
    const std::string text = TokenText(tokenizer, entry.token);
    json::object top;
    for (const auto& [id, logprob] : entry.top) top[TokenText(tokenizer, id)] = logprob;
    tokens.emplace_back(text);
    token_logprobs.emplace_back(entry.logprob);
    top_logprobs.emplace_back(std::move(top));
    text_offset.emplace_back(offset);
    offset += CountCharacters(text);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(token_logprobs)},
          {"top_logprobs", std::move(top_logprobs)},
          {"text_offset", std::move(text_offset)}};
}

// Chat: a list of objects.
json::object ChatLogprobs(const engine::Choice& choice, const text::Tokenizer& tokenizer) {
  const auto entry_of = [&](TokenId token, float logprob) {
    return json::object{{"token", TokenText(tokenizer, token)},
                        {"logprob", logprob},
                        {"bytes", TokenBytes(tokenizer, token)}};
  };
  json::array content;
  for (const engine::TokenLogprobs& entry : choice.logprobs) {
    json::object item = entry_of(entry.token, entry.logprob);
    json::array top;
    for (const auto& [id, logprob] : entry.top) top.push_back(entry_of(id, logprob));
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}};
}

json::value StopReasonValue(const engine::StopReason& reason) {
  if (const TokenId* token = std::get_if<TokenId>(&reason)) return *token;
  if (const std::string* text = std::get_if<std::string>(&reason)) return json::string(*text);
  return nullptr;
}

json::array PromptLogprobs(const engine::Completion& completion) {
  json::array list;
  for (const auto& entry : completion.prompt_logprobs) {
    if (!entry) {
      list.emplace_back(nullptr);
      continue;
    }
    json::object item{{std::to_string(entry->token), {{"logprob", entry->logprob}}}};
    for (const auto& [id, logprob] : entry->top) {
      item[std::to_string(id)] = {{"logprob", logprob}};
    }
    list.push_back(std::move(item));
  }
  return list;
}

json::object FormatChoice(const ApiRequest& request, const engine::Choice& choice, int index,
                          const text::Tokenizer& tokenizer) {
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  json::object body{{"index", index}};
  if (chat) {
    body["message"] = {{"role", "assistant"}, {"content", choice.text}};
  } else {
    body["text"] = choice.text;
  }
  body["logprobs"] = nullptr;
  if (request.sampling.logprobs) {
    body["logprobs"] =
        chat ? ChatLogprobs(choice, tokenizer) : CompletionLogprobs(choice, tokenizer);
  }
  body["finish_reason"] = FinishReasonName(choice.finish);
  body["stop_reason"] = StopReasonValue(choice.stop_reason);
  if (request.return_token_ids) body["token_ids"] = json::value_from(choice.tokens);
  return body;
}

}  // namespace

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

json::object FormatResponse(const ResponseHeader& header, const ApiRequest& request,
                            std::span<const engine::Completion> completions,
                            const text::Tokenizer& tokenizer) {
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  json::array choices;
  engine::Usage usage;
  for (const engine::Completion& completion : completions) {
    for (const engine::Choice& choice : completion.choices) {
      json::object body =
          FormatChoice(request, choice, static_cast<int>(choices.size()), tokenizer);
      if (!completion.prompt_logprobs.empty()) body["prompt_logprobs"] = PromptLogprobs(completion);
      choices.push_back(std::move(body));
    }
    usage.prompt_tokens += completion.usage.prompt_tokens;
    usage.cached_tokens += completion.usage.cached_tokens;
    usage.completion_tokens += completion.usage.completion_tokens;
  }
  return {{"id", header.id},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", header.created},
          {"model", header.model},
          {"choices", std::move(choices)},
          {"usage",
           {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}}}};
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
      return 503;
    case ErrorKind::kIo:
      return 500;
  }
  return 500;
}

json::object FormatError(const Error& error) {
  const int status = HttpStatus(error.kind);
  return {{"error",
           {{"message", error.message},
            {"type", status >= 500 ? "server_error" : "invalid_request_error"},
            {"param", error.param.empty() ? json::value(nullptr) : json::value(error.param)},
            {"code", status}}}};
}

}  // namespace quire::server
