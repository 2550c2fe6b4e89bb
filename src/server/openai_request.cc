#include "server/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/field_reader.h"
#include "server/kv_policy.h"
#include "server/output_constraint.h"

namespace quire::server {
namespace json = boost::json;
namespace {

constexpr double kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxStopStrings = 16;
constexpr int kMaxChoices = 4096;  // servers set lower limits
constexpr int kMaxLogprobs = 20;
constexpr size_t kMaxPrompts = 2048;
constexpr int kMaxBadWords = 256;
constexpr size_t kMaxBadWordBytes = 256;

// Read by others than the reader of ParseApiRequest, or told by clients for their own ends.
constexpr std::string_view kFieldsReadElsewhere[] = {
    "tools", "tool_choice", "parallel_tool_calls", "user", "metadata", "store", "service_tier"};

bool IsTokenList(const json::array& list) {
  return !list.empty() && std::all_of(list.begin(), list.end(),
                                      [](const json::value& item) { return item.is_number(); });
}

// prompt: a string, a list of strings, a list of token ids, or a list of such lists.
void ReadPrompts(FieldReader& reader, std::vector<Prompt>& prompts) {
  const json::value* value = reader.Find("prompt");
  if (value == nullptr) return reader.Fail("prompt", "'prompt' is missing");
  const auto read_one = [&](const json::value& item) {
    if (item.is_string()) {
      prompts.emplace_back(std::string(item.get_string()));
      return;
    }
    std::vector<TokenId> ids;
    json::object holder{{"prompt", item}};
    FieldReader inner(holder);
    inner.TokenIds("prompt", ids);
    if (!inner.ok()) {
      return reader.Fail("prompt",
                         "'prompt' must be a string, a list of strings, a list of token "
                         "ids or a list of lists of token ids");
    }
    prompts.emplace_back(std::move(ids));
  };
  if (!value->is_array() || IsTokenList(value->get_array())) return read_one(*value);
  const json::array& list = value->get_array();
  if (list.empty()) return reader.Fail("prompt", "'prompt' is an empty list");
  if (list.size() > kMaxPrompts) {
    return reader.Fail("prompt", fmt::format("'prompt' may hold at most {} prompts, not {}",
                                             kMaxPrompts, list.size()));
  }
  for (const json::value& item : list) read_one(item);
}

void ReadLogitBias(FieldReader& reader, sched::SamplingParams& sampling) {
  const json::value* value = reader.Find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) {
    return reader.Fail("logit_bias", "'logit_bias' must be an object of token id: bias");
  }
  sampling.logit_bias.clear();
  for (const json::key_value_pair& pair : value->get_object()) {
    TokenId id = 0;
    const std::string_view key = pair.key();
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || id < 0) {
      return reader.Fail("logit_bias",
                         fmt::format("'logit_bias' has the key '{}', which is no token id", key));
    }
    if (!pair.value().is_number()) {
      return reader.Fail("logit_bias", "'logit_bias' must hold numbers from -100 to 100");
    }
    const double bias = pair.value().to_number<double>();
    if (!(bias >= -100 && bias <= 100)) {
      return reader.Fail("logit_bias", "'logit_bias' must hold numbers from -100 to 100");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

// logprobs: completions count alternatives; chat switches them on and counts in top_logprobs.
void ReadLogprobs(FieldReader& reader, ApiRequest& request) {
  const Range range{0, kMaxLogprobs};
  if (request.endpoint == Endpoint::kCompletions) {
    reader.Int("logprobs", request.sampling.logprobs, range);
  } else {
    bool wanted = false;
    int alternatives = 0;
    reader.Bool("logprobs", wanted);
    reader.Int("top_logprobs", alternatives, range);
    if (alternatives > 0 && !wanted) {
      reader.Fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
    }
    if (wanted) request.sampling.logprobs = alternatives;
  }
  reader.Int("prompt_logprobs", request.sampling.prompt_logprobs, range);
  request.tells_prompt_logprobs = request.sampling.prompt_logprobs.has_value();
}

void ReadSampling(FieldReader& reader, ApiRequest& request) {
  sched::SamplingParams& sampling = request.sampling;
  reader.Float("temperature", sampling.temperature, {0, 100});
  reader.Float("top_p", sampling.top_p, {0, 1});
  reader.Int("top_k", sampling.top_k, {-1, kMaxInt});
  sampling.top_k = std::max(sampling.top_k, 0);  // vLLM's -1 and 0 both mean off
  reader.Float("min_p", sampling.min_p, {0, 1});
  reader.Float("repetition_penalty", sampling.repetition_penalty, {0.01, 100});
  reader.Float("presence_penalty", sampling.presence_penalty, {-2, 2});
  reader.Float("frequency_penalty", sampling.frequency_penalty, {-2, 2});
  reader.Seed("seed", request.seed);
  reader.Int("min_tokens", sampling.min_tokens, {0, kMaxInt});
  reader.Bool("ignore_eos", sampling.ignore_eos);
  reader.TokenIds("stop_token_ids", sampling.stop_token_ids);
  reader.Strings("stop", sampling.stop, kMaxStopStrings);
  std::erase(sampling.stop, "");
  reader.Bool("include_stop_str_in_output", sampling.include_stop_in_output);
  reader.TokenIds("allowed_token_ids", sampling.allowed_token_ids);
  if (reader.Find("allowed_token_ids") && sampling.allowed_token_ids.empty()) {
    reader.Fail("allowed_token_ids",
                "'allowed_token_ids' is an empty list, so no token could come; leave it out to "
                "allow all");
  }
  reader.Strings("bad_words", request.bad_words, kMaxBadWords);
  std::erase(request.bad_words, "");
  if (std::ranges::any_of(request.bad_words,
                          [](const std::string& word) { return word.size() > kMaxBadWordBytes; })) {
    reader.Fail("bad_words",
                fmt::format("a word of 'bad_words' may have at most {} bytes", kMaxBadWordBytes));
  }
  ReadLogitBias(reader, sampling);
  ReadLogprobs(reader, request);

  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  request.limit_given = reader.Find("max_tokens") || reader.Find("max_completion_tokens");
  sampling.max_tokens = chat ? std::numeric_limits<int>::max() : 16;
  reader.Int("max_tokens", sampling.max_tokens, {0, kMaxInt});
  if (chat) reader.Int("max_completion_tokens", sampling.max_tokens, {0, kMaxInt});
  if (sampling.min_tokens > sampling.max_tokens) {
    reader.Fail("min_tokens", fmt::format("'min_tokens' ({}) is more than 'max_tokens' ({})",
                                          sampling.min_tokens, sampling.max_tokens));
  }
}

// vLLM's beam search: best_of (else n) beams in place of sampling.
void ReadBeamSearch(FieldReader& reader, ApiRequest& request) {
  bool wanted = false;
  reader.Bool("use_beam_search", wanted);
  if (!wanted) return;
  sched::BeamSearchParams& beams = request.beam_search.emplace();
  reader.Float("length_penalty", beams.length_penalty, {-10, 10});
  if (const json::value* early = reader.Find("early_stopping")) {
    using EarlyStopping = sched::BeamSearchParams::EarlyStopping;
    if (early->is_bool()) {
      beams.early_stopping = early->get_bool() ? EarlyStopping::kOn : EarlyStopping::kOff;
    } else if (early->is_string() && early->get_string() == "never") {
      beams.early_stopping = EarlyStopping::kNever;
    } else {
      reader.Fail("early_stopping", "'early_stopping' must be true, false or \"never\"");
    }
  }
}

// What beam search would have to leave aside is refused, not forgotten.
void RefuseWithBeams(FieldReader& reader, const ApiRequest& request) {
  const sched::SamplingParams& sampling = request.sampling;
  const auto refuse = [&](bool given, const char* name) {
    if (given) reader.Fail(name, fmt::format("beam search cannot take '{}' into account", name));
  };
  refuse(!sampling.stop.empty(), "stop");
  refuse(!sampling.logit_bias.empty(), "logit_bias");
  refuse(sampling.presence_penalty != 0.0f, "presence_penalty");
  refuse(sampling.frequency_penalty != 0.0f, "frequency_penalty");
  refuse(reader.Find("repetition_penalty") != nullptr && sampling.repetition_penalty != 1.0f,
         "repetition_penalty");
  refuse(sampling.logprobs.has_value(), "logprobs");
  refuse(!sampling.allowed_token_ids.empty(), "allowed_token_ids");
  refuse(!request.bad_words.empty(), "bad_words");
}

void ReadCommon(FieldReader& reader, ApiRequest& request) {
  reader.String("model", request.model);
  reader.Int("n", request.n, {1, kMaxChoices});
  request.best_of = request.n;
  reader.Int("best_of", request.best_of, {1, kMaxChoices});
  if (request.best_of < request.n) {
    reader.Fail("best_of", fmt::format("'best_of' ({}) must be at least 'n' ({})", request.best_of,
                                       request.n));
  }
  ReadBeamSearch(reader, request);
  reader.Int("priority", request.priority, {-kMaxInt, kMaxInt});
  reader.String("cache_salt", request.cache_salt);
  if (const json::value* policy = reader.Find("kv_policy")) {
    Result<kv::EvictionOptions> eviction = ParseKvPolicy(*policy);
    if (eviction.ok()) {
      request.eviction = *eviction;
    } else {
      reader.Fail("kv_policy", "'kv_policy': " + eviction.error().message);
    }
  }
  reader.String("request_id", request.request_id);
  reader.Bool("stream", request.stream);
  reader.Bool("skip_special_tokens", request.sampling.skip_special_tokens);
  reader.Bool("return_token_ids", request.return_token_ids);
  if (const json::value* options = reader.Find("stream_options")) {
    if (!options->is_object()) {
      reader.Fail("stream_options", "'stream_options' must be an object");
    } else if (!request.stream) {
      reader.Fail("stream_options", "'stream_options' needs 'stream': true");
    } else {
      FieldReader inner(options->get_object());
      inner.Bool("include_usage", request.include_usage);
      if (!inner.ok()) reader.Fail("stream_options", inner.status().error().message);
    }
  }
  if (reader.Find("truncate_prompt_tokens")) {
    int tokens = 0;
    reader.Int("truncate_prompt_tokens", tokens, {1, kMaxInt});
    request.truncate_prompt_tokens = tokens;
  }
}

void ReadCompletion(FieldReader& reader, ApiRequest& request) {
  ReadPrompts(reader, request.prompts);
  reader.Bool("echo", request.echo);
  if (request.echoes_logprobs()) {
    std::optional<int>& scored = request.sampling.prompt_logprobs;
    scored = std::max(scored.value_or(0), *request.sampling.logprobs);
  }
  reader.Bool("add_special_tokens", request.add_special_tokens);
  if (const json::value* suffix = reader.Find("suffix");
      suffix != nullptr && !(suffix->is_string() && suffix->get_string().empty())) {
    reader.Fail("suffix", "'suffix' is not supported: no loaded model was trained to fill in text");
  }
}

void ReadMessages(FieldReader& reader, json::array& messages) {
  const json::value* value = reader.Find("messages");
  if (value == nullptr) return reader.Fail("messages", "'messages' is missing");
  if (!value->is_array() || value->get_array().empty()) {
    return reader.Fail("messages", "'messages' must be a list with at least one message");
  }
  messages = value->get_array();
}

void ReadChat(FieldReader& reader, ApiRequest& request) {
  ReadMessages(reader, request.messages);
  // The template writes the special tokens itself.
  request.add_special_tokens = false;
  reader.Bool("add_special_tokens", request.add_special_tokens);
  reader.String("chat_template", request.chat_template);
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  reader.Bool("add_generation_prompt", add_generation_prompt);
  reader.Bool("continue_final_message", continue_final_message);
  if (continue_final_message && reader.Find("add_generation_prompt") && add_generation_prompt) {
    reader.Fail("continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' exclude each other");
  }
  if (const json::value* extra = reader.Find("chat_template_kwargs")) {
    if (!extra->is_object()) {
      return reader.Fail("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    }
    request.template_arguments = extra->get_object();
  }
  request.template_arguments["add_generation_prompt"] =
      add_generation_prompt && !continue_final_message;
  request.template_arguments["continue_final_message"] = continue_final_message;
  request.continue_final_message = continue_final_message;
}

}  // namespace

std::string_view UrlOf(Endpoint endpoint) {
  return endpoint == Endpoint::kCompletions ? "/v1/completions" : "/v1/chat/completions";
}

std::optional<Endpoint> EndpointFromUrl(std::string_view url) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    if (url == UrlOf(endpoint)) return endpoint;
  }
  return std::nullopt;
}

Result<ApiRequest> ParseApiRequest(Endpoint endpoint, const json::value& body,
                                   const sched::SamplingParams& defaults) {
  const json::object* object = body.if_object();
  if (object == nullptr) {
    return MakeError(ErrorKind::kUsage, "the body must be a JSON object, not {}", KindName(body));
  }
  ApiRequest request;
  request.endpoint = endpoint;
  request.sampling = defaults;
  FieldReader reader(*object);
  ReadCommon(reader, request);
  ReadSampling(reader, request);
  ReadConstraint(reader, request.sampling.constraint);
  if (request.beam_search) RefuseWithBeams(reader, request);
  if (endpoint == Endpoint::kCompletions) {
    ReadCompletion(reader, request);
  } else {
    ReadChat(reader, request);
    QUIRE_RETURN_IF_ERROR(reader.status());
    QUIRE_ASSIGN_OR_RETURN(request.tools, ParseToolOptions(*object));
    if (request.tools.MayCall()) {
      request.template_arguments["tools"] = ToolsForTemplate(request.tools);
    }
  }
  QUIRE_RETURN_IF_ERROR(reader.status());
  request.unknown_fields = reader.Unread(kFieldsReadElsewhere);
  return request;
}

}  // namespace quire::server
