#include "server/openai_prompts.h"

#include <algorithm>
#include <utility>

#include "server/chat_messages.h"

namespace quire::server {
namespace {

// Exactly one BOS at the start where the model wants one, whoever wrote it: the template, the
// client or the tokenizer.
void SettleBos(const text::Tokenizer& tokenizer, std::vector<TokenId>& ids) {
  if (!tokenizer.adds_bos() || !tokenizer.bos()) return;
  const TokenId bos = *tokenizer.bos();
  const auto first = std::find_if(ids.begin(), ids.end(), [&](TokenId id) { return id != bos; });
  const auto bos_count = first - ids.begin();
  if (bos_count == 0) {
    ids.insert(ids.begin(), bos);
  } else {
    ids.erase(ids.begin(), first - 1);
  }
}

// The model goes on with the last message itself: what the template writes behind it goes. Where
// that begins, a mark tells that no text has: the message's words alone may come again later.
constexpr std::string_view kEndOfMessage = "\x01\x02 end of the message \x02\x01";

Status MarkFinalMessage(boost::json::array& messages) {
  boost::json::object& last = messages.back().as_object();
  boost::json::value* content = last.if_contains("content");
  if (last.at("role") != "assistant" || content == nullptr || !content->is_string() ||
      last.contains("tool_calls")) {
    return Error{
        ErrorKind::kUsage,
        "'continue_final_message' needs a text of the assistant, without tool calls, as the "
        "last message",
        "continue_final_message"};
  }
  boost::json::string& words = content->get_string();
  // As templates trim.
  words.resize(std::string_view(words).find_last_not_of(" \n\t\r") + 1);
  words.append(kEndOfMessage);
  return Ok{};
}

Status CutAtMark(std::string& text) {
  const size_t at = text.find(kEndOfMessage);
  if (at == std::string::npos || text.find(kEndOfMessage, at + 1) != std::string::npos) {
    return Error{ErrorKind::kUsage, "the chat template changes the message that is to be continued",
                 "continue_final_message"};
  }
  text.resize(at);
  return Ok{};
}

// Where the prompt stands in the body.
const char* FieldOf(const ApiRequest& api) {
  return api.endpoint == Endpoint::kCompletions ? "prompt" : "messages";
}

// A text that takes long to encode, and is longer than any ordinary text of so many tokens, is
// refused before.
Status CheckLength(std::string_view text, const ApiRequest& api, const PromptLimits& limits) {
  constexpr size_t kEncodedSoon = 1 << 20;
  constexpr size_t kTokenBytesMax = 64;  // on average; single tokens may be longer
  const size_t bytes_max =
      std::max(kEncodedSoon, kTokenBytesMax * static_cast<size_t>(limits.max_model_len));
  if (text.size() <= bytes_max) return Ok{};
  return Error{ErrorKind::kUsage,
               fmt::format("the prompt has {} bytes; at most {} are taken where the longest "
                           "sequence is {} tokens; shorten the prompt",
                           text.size(), bytes_max, limits.max_model_len),
               FieldOf(api)};
}

Result<std::vector<TokenId>> EncodeChat(const ApiRequest& api, const engine::LoadedModel& model,
                                        const PromptLimits& limits) {
  const text::ChatTemplate* chat_template = limits.chat_template;
  if (chat_template == nullptr && model.chat_template()) chat_template = &*model.chat_template();
  std::optional<text::ChatTemplate> own;
  if (!api.chat_template.empty()) {
    QUIRE_ASSIGN_OR_RETURN(own, engine::MakeChatTemplate(api.chat_template, model.tokenizer()));
    chat_template = &*own;
  }
  if (chat_template == nullptr) {
    return Error{ErrorKind::kUsage,
                 "this model has no chat template; use /v1/completions or pass 'chat_template'",
                 "messages"};
  }
  QUIRE_ASSIGN_OR_RETURN(
      boost::json::array messages,
      NormalizeMessages(api.messages, DetectMessageShape(chat_template->source())));
  if (api.continue_final_message) QUIRE_RETURN_IF_ERROR(MarkFinalMessage(messages));
  Result<std::string> text = chat_template->Render(messages, api.template_arguments);
  if (!text.ok()) return Error{ErrorKind::kUsage, text.error().message, "messages"};
  if (api.continue_final_message) QUIRE_RETURN_IF_ERROR(CutAtMark(*text));
  QUIRE_RETURN_IF_ERROR(CheckLength(*text, api, limits));
  if (api.forced_call) *text += api.forced_call->prefix;
  std::vector<TokenId> ids = model.tokenizer().Encode(
      *text, {.add_special = api.add_special_tokens, .parse_special = true});
  SettleBos(model.tokenizer(), ids);
  return ids;
}

Result<std::vector<TokenId>> EncodePrompt(const ApiRequest& api, const Prompt& prompt,
                                          const engine::LoadedModel& model,
                                          const PromptLimits& limits) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const std::string& text = std::get<std::string>(prompt);
  if (text.empty()) return Error{ErrorKind::kUsage, "the prompt is empty", "prompt"};
  QUIRE_RETURN_IF_ERROR(CheckLength(text, api, limits));
  std::vector<TokenId> ids = model.tokenizer().Encode(
      text, {.add_special = api.add_special_tokens, .parse_special = true});
  if (api.add_special_tokens) SettleBos(model.tokenizer(), ids);
  return ids;
}

// What is left of a truncated prompt is its last tokens, for all who look at it.
void Truncate(ApiRequest& api, std::vector<std::vector<TokenId>>& prompts) {
  if (!api.truncate_prompt_tokens) return;
  const auto keep = static_cast<size_t>(*api.truncate_prompt_tokens);
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<TokenId>& ids = prompts[i];
    if (ids.size() <= keep) continue;
    ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(keep));
    if (!api.prompts.empty()) api.prompts[i] = ids;
  }
}

Result<sched::Request> MakeRequest(const ApiRequest& api, std::vector<TokenId> ids,
                                   const PromptLimits& limits) {
  const char* field = FieldOf(api);
  const int room = limits.max_model_len - static_cast<int>(ids.size());
  if (room < 1) {
    return Error{ErrorKind::kUsage,
                 fmt::format("the prompt has {} tokens, but the longest sequence is {} tokens and "
                             "needs room for at least one new one; shorten the prompt",
                             ids.size(), limits.max_model_len),
                 field};
  }
  sched::Request request;
  request.id = api.request_id;
  request.prompt = std::move(ids);
  request.sampling = api.sampling;
  request.beam_search = api.beam_search;
  // Beams keep everything, unless they are told not to.
  if (!api.beam_search) request.eviction = limits.eviction;
  if (api.eviction) request.eviction = *api.eviction;
  // Only who asks for it gets a text without the context's end.
  const bool endless = api.limit_given && request.eviction.policy == kv::EvictionPolicy::kStreaming;
  request.sampling.max_tokens = std::min(
      api.sampling.max_tokens, endless ? std::max(room, limits.max_streaming_tokens) : room);
  request.sampling.min_tokens = std::min(api.sampling.min_tokens, request.sampling.max_tokens);
  request.n = api.n;
  if (api.best_of > api.n) request.best_of = api.best_of;
  request.priority = api.priority;
  request.cache_salt = api.cache_salt;
  return request;
}

// Calls begin with control tokens in some vocabularies: the parser must see them.
void ShowMarkers(const text::Tokenizer& tokenizer, sched::SamplingParams& sampling) {
  for (const std::string_view marker : kToolCallMarkers) {
    const std::vector<TokenId> ids = tokenizer.Encode(marker, {.parse_special = true});
    if (ids.size() == 1) sampling.shown_special_tokens.push_back(ids.front());
  }
}

// How this model writes calls, and what an answer that must be one looks like.
Status SetUpCalls(ApiRequest& api, const engine::LoadedModel& model,
                  const text::ChatTemplate* chat_template) {
  if (!api.tools.MayCall()) return Ok{};
  if (chat_template == nullptr && model.chat_template()) chat_template = &*model.chat_template();
  const std::string& source = !api.chat_template.empty() ? api.chat_template
                              : chat_template != nullptr ? chat_template->source()
                                                         : api.chat_template;
  ShowMarkers(model.tokenizer(), api.sampling);
  api.tool_format = DetectToolCallFormat(source).value_or(ToolCallFormat::kHermes);
  api.forced_call = ConstrainToolCall(api.tool_format, api.tools);
  if (!api.forced_call) return Ok{};
  if (api.sampling.constraint) {
    return Error{ErrorKind::kUsage, "an answer that must call a tool can have no other format",
                 "tool_choice"};
  }
  api.sampling.constraint = sched::OutputConstraint{sched::OutputConstraint::Kind::kJsonSchema,
                                                    boost::json::serialize(api.forced_call->schema),
                                                    {}};
  return Ok{};
}

// What the client wrote, or the words of the ids it sent.
void FillEchoes(ApiRequest& api, const std::vector<std::vector<TokenId>>& prompts,
                const text::Tokenizer& tokenizer) {
  api.echoes.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string* text = std::get_if<std::string>(&api.prompts[i]);
    api.echoes.push_back(
        {text ? *text : tokenizer.Decode(prompts[i], {.skip_special = true}), prompts[i].front()});
  }
}

// The tokens of `text` where it stands behind other text: without what a tokenizer puts before a
// beginning.
std::vector<TokenId> EncodeWithin(const text::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> before = tokenizer.Encode("\n");
  std::vector<TokenId> both = tokenizer.Encode(fmt::format("\n{}", text));
  if (both.size() <= before.size() ||
      !std::ranges::equal(before, std::span(both).first(before.size()))) {
    return tokenizer.Encode(text);
  }
  both.erase(both.begin(), both.begin() + static_cast<ptrdiff_t>(before.size()));
  return both;
}

// As in vLLM: each word alone, and with a space before it.
std::vector<std::vector<TokenId>> EncodeBadWords(const std::vector<std::string>& words,
                                                 const text::Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> encoded;
  for (const std::string& word : words) {
    for (const std::string& form : {word, " " + word}) {
      std::vector<TokenId> ids = EncodeWithin(tokenizer, form);
      if (!ids.empty()) encoded.push_back(std::move(ids));
    }
  }
  return encoded;
}

}  // namespace

Result<std::vector<std::vector<TokenId>>> EncodePrompts(ApiRequest& api,
                                                        const engine::LoadedModel& model,
                                                        const PromptLimits& limits) {
  QUIRE_RETURN_IF_ERROR(SetUpCalls(api, model, limits.chat_template));
  std::vector<std::vector<TokenId>> prompts;
  if (api.endpoint == Endpoint::kChatCompletions) {
    QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeChat(api, model, limits));
    prompts.push_back(std::move(ids));
  } else {
    for (const Prompt& prompt : api.prompts) {
      QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodePrompt(api, prompt, model, limits));
      prompts.push_back(std::move(ids));
    }
  }
  return prompts;
}

Result<std::vector<sched::Request>> BuildRequests(ApiRequest& api, const engine::LoadedModel& model,
                                                  const PromptLimits& limits) {
  QUIRE_ASSIGN_OR_RETURN(auto prompts, EncodePrompts(api, model, limits));
  Truncate(api, prompts);
  for (const std::vector<TokenId>& ids : prompts) {
    if (ids.empty()) return Error{ErrorKind::kUsage, "the prompt is empty", FieldOf(api)};
  }
  if (api.return_token_ids) api.prompt_ids = prompts;
  if (api.echo) FillEchoes(api, prompts, model.tokenizer());
  const auto bad_words = EncodeBadWords(api.bad_words, model.tokenizer());
  std::vector<sched::Request> requests;
  for (std::vector<TokenId>& ids : prompts) {
    QUIRE_ASSIGN_OR_RETURN(sched::Request request, MakeRequest(api, std::move(ids), limits));
    // Prompts of one body that bring no seed must not draw alike.
    request.sampling.bad_words = bad_words;
    request.sampling.seed = api.seed.value_or(limits.seed + requests.size());
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace quire::server
