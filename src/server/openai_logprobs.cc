#include "server/openai_logprobs.h"

#include <algorithm>

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

// The parallel lists of a completion.
struct CompletionLists {
  const text::Tokenizer& tokenizer;
  json::array tokens = {};
  json::array token_logprobs = {};
  json::array top_logprobs = {};
  json::array offsets = {};

  // Returns the characters of the token's text. `entry` null: nothing is known.
  int64_t Add(TokenId token, const engine::TokenLogprobs* entry, int64_t offset) {
    const std::string text = TokenText(tokenizer, token);
    tokens.emplace_back(text);
    offsets.emplace_back(offset);
    if (entry == nullptr) {
      token_logprobs.emplace_back(nullptr);
      top_logprobs.emplace_back(nullptr);
    } else {
      json::object top;
      for (const auto& [id, logprob] : entry->top) top[TokenText(tokenizer, id)] = logprob;
      token_logprobs.emplace_back(entry->logprob);
      top_logprobs.emplace_back(std::move(top));
    }
    return text::CountCharacters(text);
  }
  json::object Body() && {
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(token_logprobs)},
            {"top_logprobs", std::move(top_logprobs)},
            {"text_offset", std::move(offsets)}};
  }
};

}  // namespace

json::object CompletionLogprobs(std::span<const engine::TokenLogprobs> entries,
                                const text::Tokenizer& tokenizer, int64_t& text_offset) {
  CompletionLists lists{tokenizer};
  for (const engine::TokenLogprobs& entry : entries) {
    text_offset += lists.Add(entry.token, &entry, text_offset);
  }
  return std::move(lists).Body();
}

json::object EchoLogprobs(TokenId first_token,
                          std::span<const std::optional<engine::TokenLogprobs>> entries,
                          const text::Tokenizer& tokenizer, int64_t text_characters) {
  CompletionLists lists{tokenizer};
  int64_t end = lists.Add(first_token, nullptr, 0);
  for (const auto& entry : entries) {
    if (entry) end += lists.Add(entry->token, &*entry, end);
  }
  // Tokens may begin with what is no part of the text: a BOS, a dummy space.
  for (json::value& offset : lists.offsets) {
    offset = std::max<int64_t>(0, offset.as_int64() - (end - text_characters));
  }
  return std::move(lists).Body();
}

void AppendLogprobs(json::object& logprobs, const json::object& more) {
  for (const json::key_value_pair& list : more) {
    json::array& target = logprobs[list.key()].as_array();
    for (const json::value& item : list.value().as_array()) target.push_back(item);
  }
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
