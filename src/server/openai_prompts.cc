#include "server/openai_prompts.h"

#include <algorithm>
#include <utility>

namespace quire::server {
namespace {

// Exactly one BOS at the start where the model wants one, whoever wrote it: the template, the
// client or the tokenizer.
void SettleBos(const text::Tokenizer& tokenizer, std::vector<TokenId>& ids) {
  if (!tokenizer.adds_bos() || !tokenizer.bos()) return;
  const TokenId bos = *tokenizer.bos();
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  while (ids.size() >= 2 && ids[1] == bos) ids.erase(ids.begin());
}

Result<std::vector<TokenId>> EncodeChat(const ApiRequest& api, const engine::LoadedModel& model) {
  const text::ChatTemplate* chat_template =
      model.chat_template() ? &*model.chat_template() : nullptr;
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
  Result<std::string> text = chat_template->Render(api.messages, api.template_arguments);
  if (!text.ok()) return Error{ErrorKind::kUsage, text.error().message, "messages"};
  std::vector<TokenId> ids = model.tokenizer().Encode(
      *text, {.add_special = api.add_special_tokens, .parse_special = true});
  SettleBos(model.tokenizer(), ids);
  return ids;
}

Result<std::vector<TokenId>> EncodePrompt(const ApiRequest& api, const Prompt& prompt,
                                          const engine::LoadedModel& model) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const std::string& text = std::get<std::string>(prompt);
  if (text.empty()) return Error{ErrorKind::kUsage, "the prompt is empty", "prompt"};
  std::vector<TokenId> ids = model.tokenizer().Encode(
      text, {.add_special = api.add_special_tokens, .parse_special = true});
  if (api.add_special_tokens) SettleBos(model.tokenizer(), ids);
  return ids;
}

Result<sched::Request> MakeRequest(const ApiRequest& api, std::vector<TokenId> ids,
                                   const PromptLimits& limits) {
  const char* field = api.endpoint == Endpoint::kCompletions ? "prompt" : "messages";
  if (api.truncate_prompt_tokens) {
    const size_t keep = static_cast<size_t>(*api.truncate_prompt_tokens);
    if (ids.size() > keep) ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(keep));
  }
  if (ids.empty()) {
    return Error{ErrorKind::kUsage, "the prompt is empty", field};
  }
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
  request.sampling.max_tokens = std::min(api.sampling.max_tokens, room);
  request.sampling.min_tokens = std::min(api.sampling.min_tokens, request.sampling.max_tokens);
  request.n = api.n;
  if (api.best_of > api.n) request.best_of = api.best_of;
  request.beam_search = api.beam_search;
  request.priority = api.priority;
  request.cache_salt = api.cache_salt;
  return request;
}

}  // namespace

Result<std::vector<sched::Request>> BuildRequests(const ApiRequest& api,
                                                  const engine::LoadedModel& model,
                                                  const PromptLimits& limits) {
  std::vector<std::vector<TokenId>> prompts;
  if (api.endpoint == Endpoint::kChatCompletions) {
    QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeChat(api, model));
    prompts.push_back(std::move(ids));
  } else {
    for (const Prompt& prompt : api.prompts) {
      QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodePrompt(api, prompt, model));
      prompts.push_back(std::move(ids));
    }
  }
  std::vector<sched::Request> requests;
  for (std::vector<TokenId>& ids : prompts) {
    QUIRE_ASSIGN_OR_RETURN(sched::Request request, MakeRequest(api, std::move(ids), limits));
    request.sampling.seed = api.seed.value_or(limits.seed);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace quire::server
