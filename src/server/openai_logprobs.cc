#include "server/openai_logprobs.h"

#include "text/utf8.h"

namespace quire::server {
namespace json = boost::json;
namespace {

// A token's bytes as text; bytes that are no UTF-8 by themselves show as U+FFFD.
std::string TokenText(const text::Tokenizer& tokenizer, TokenId token) {
  return text::ToValidUtf8(tokenizer.TokenBytes(token));
}

json::array TokenBytes(const text::Tokenizer& tokenizer, TokenId token) {
  json::array bytes;
  for (const char byte : tokenizer.TokenBytes(token)) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

}  // namespace

json::object CompletionLogprobs(std::span<const engine::TokenLogprobs> entries,
                                const text::Tokenizer& tokenizer, int64_t& text_offset) {
  json::array tokens, token_logprobs, top_logprobs, offsets;
  for (const engine::TokenLogprobs& entry : entries) {
    const std::string text = TokenText(tokenizer, entry.token);
    json::object top;
    for (const auto& [id, logprob] : entry.top) top[TokenText(tokenizer, id)] = logprob;
    tokens.emplace_back(text);
    token_logprobs.emplace_back(entry.logprob);
    top_logprobs.emplace_back(std::move(top));
    offsets.emplace_back(text_offset);
    text_offset += text::CountCharacters(text);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(token_logprobs)},
          {"top_logprobs", std::move(top_logprobs)},
          {"text_offset", std::move(offsets)}};
}

json::object ChatLogprobs(std::span<const engine::TokenLogprobs> entries,
                          const text::Tokenizer& tokenizer) {
  const auto entry_of = [&](TokenId token, float logprob) {
    return json::object{{"token", TokenText(tokenizer, token)},
                        {"logprob", logprob},
                        {"bytes", TokenBytes(tokenizer, token)}};
  };
  json::array content;
  for (const engine::TokenLogprobs& entry : entries) {
    json::object item = entry_of(entry.token, entry.logprob);
    json::array top;
    for (const auto& [id, logprob] : entry.top) top.push_back(entry_of(id, logprob));
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}};
}

json::array PromptLogprobs(std::span<const std::optional<engine::TokenLogprobs>> entries) {
  json::array list;
  for (const auto& entry : entries) {
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

}  // namespace quire::server
