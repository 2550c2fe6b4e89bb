// ApiService: what is answered without computing: models, tokens, requests under way.
#include <atomic>

#include "base/exhaustion.h"
#include "server/api_service.h"
#include "server/field_reader.h"
#include "server/http_error.h"
#include "server/openai_format.h"
#include "server/openai_prompts.h"
#include "server/request_json.h"

namespace quire::server {
namespace json = boost::json;
namespace {

void AnswerJson(Exchange& exchange, const json::object& body) {
  exchange.Respond({.body = json::serialize(body)});
}

void AnswerResult(Exchange& exchange, Dialect dialect, const Result<json::object>& result) {
  if (result.ok()) return AnswerJson(exchange, *result);
  const Error& error = result.error();
  exchange.Respond(ErrorResponse(
      dialect, {.status = HttpStatus(error.kind), .message = error.message, .param = error.param}));
}

Result<json::object> ParseObject(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(json::value value, ParseBody(body));
  if (!value.is_object()) {
    return MakeError(ErrorKind::kUsage, "the body must be a JSON object, not {}", KindName(value));
  }
  return std::move(value.get_object());
}

json::object ModelBody(const std::string& name, int64_t created, int max_model_len) {
  return {{"id", name},          {"object", "model"}, {"created", created},
          {"owned_by", "quire"}, {"root", name},      {"max_model_len", max_model_len}};
}

// One sequence that waits or runs.
json::object SequenceBody(const sched::Scheduler& scheduler, SequenceId id) {
  const sched::Sequence& sequence = scheduler.sequence(id);
  const sched::RequestState& request = scheduler.request(sequence.request);
  int64_t blocks = 0;
  if (sequence.lease.held()) {
    for (int group = 0; group < scheduler.cache().groups(); ++group) {
      blocks += static_cast<int64_t>(sequence.lease.frames(group).size());
    }
  }
  return {{"id", request.request.id},
          {"index", sequence.index},
          {"state", sequence.lease.held() ? "running" : "waiting"},
          {"priority", request.request.priority},
          {"prompt_tokens", sequence.prompt_tokens},
          {"cached_tokens", sequence.cached_tokens},
          {"computed_tokens", sequence.computed()},
          {"completion_tokens", sequence.output_tokens()},
          {"blocks_leased", blocks},
          {"preemptions", sequence.preemptions}};
}

}  // namespace

void ApiService::ListModels(std::shared_ptr<Exchange> exchange) {
  AnswerJson(*exchange, {{"object", "list"},
                         {"data", {ModelBody(model_name_, started_s_, engine_->max_model_len())}}});
}

void ApiService::ShowModel(std::shared_ptr<Exchange> exchange) {
  const Status known = CheckModelName(exchange->request().id);
  if (!known.ok()) return AnswerResult(*exchange, Dialect::kCompletions, known.error());
  AnswerJson(*exchange, ModelBody(model_name_, started_s_, engine_->max_model_len()));
}

void ApiService::RefuseEmbeddings(std::shared_ptr<Exchange> exchange) {
  AnswerResult(*exchange, Dialect::kCompletions,
               Error{ErrorKind::kUnsupported,
                     fmt::format("'{}' was trained to continue text, and its hidden states are no "
                                 "embeddings; use a model made for that",
                                 model_name_),
                     "model"});
}

// The exchange itself never leaves the I/O thread.
void ApiService::AnswerFromWorker(
    std::shared_ptr<Exchange> exchange, Dialect dialect,
    std::function<Result<json::object>(const std::string& body)> compute) {
  auto http = std::make_shared<const HttpRequest>(std::move(exchange->request()));
  auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->OnClosed([gone] { *gone = true; });
  loop_.PostToWorker([this, exchange = std::move(exchange), http, gone, dialect,
                      compute = std::move(compute)]() mutable {
    auto result = std::make_shared<Result<json::object>>(json::object());
    if (!*gone) *result = base::WithinMemory([&] { return compute(http->body); });
    loop_.Post([exchange = std::move(exchange), result, dialect] {
      AnswerResult(*exchange, dialect, *result);
    });
  });
}

// Anthropic's /v1/messages/count_tokens: what the messages would take, answering nothing.
void ApiService::CountMessageTokens(std::shared_ptr<Exchange> exchange) {
  const auto count = [this](const std::string& text) -> Result<json::object> {
    QUIRE_ASSIGN_OR_RETURN(json::object body, ParseObject(text));
    body["max_tokens"] = 1;
    const engine::LoadedModel& model = engine_->model();
    QUIRE_ASSIGN_OR_RETURN(DialectRequest asked,
                           ParseRequest(Dialect::kMessages, body, model.sampling_defaults()));
    QUIRE_RETURN_IF_ERROR(CheckModelName(asked.api.model));
    QUIRE_ASSIGN_OR_RETURN(const auto prompts, EncodePrompts(asked.api, model, Limits()));
    return json::object{{"input_tokens", prompts.front().size()}};
  };
  AnswerFromWorker(std::move(exchange), Dialect::kMessages, count);
}

void ApiService::Tokenize(std::shared_ptr<Exchange> exchange) {
  const auto encode = [this](const std::string& body) -> Result<json::object> {
    QUIRE_ASSIGN_OR_RETURN(json::object object, ParseObject(body));
    const bool chat = object.contains("messages");
    if (!chat && object.if_contains("prompt") != nullptr && !object.at("prompt").is_string()) {
      return Error{ErrorKind::kUsage, "'prompt' must be a string", "prompt"};
    }
    const engine::LoadedModel& model = engine_->model();
    QUIRE_ASSIGN_OR_RETURN(
        ApiRequest api, ParseApiRequest(chat ? Endpoint::kChatCompletions : Endpoint::kCompletions,
                                        object, model.sampling_defaults()));
    QUIRE_RETURN_IF_ERROR(CheckModelName(api.model));
    QUIRE_ASSIGN_OR_RETURN(const auto prompts, EncodePrompts(api, model, Limits()));
    const std::vector<TokenId>& ids = prompts.front();
    return json::object{{"count", ids.size()},
                        {"max_model_len", engine_->max_model_len()},
                        {"tokens", json::value_from(ids)}};
  };
  AnswerFromWorker(std::move(exchange), Dialect::kCompletions, encode);
}

void ApiService::Detokenize(std::shared_ptr<Exchange> exchange) {
  const auto decode = [this](const std::string& body) -> Result<json::object> {
    QUIRE_ASSIGN_OR_RETURN(json::object object, ParseObject(body));
    FieldReader fields(object);
    std::string model;
    std::vector<TokenId> ids;
    fields.String("model", model);
    fields.TokenIds("tokens", ids);
    QUIRE_RETURN_IF_ERROR(fields.status());
    QUIRE_RETURN_IF_ERROR(CheckModelName(model));
    const text::Tokenizer& tokenizer = engine_->model().tokenizer();
    for (const TokenId id : ids) {
      if (id >= tokenizer.vocab_size()) {
        return Error{
            ErrorKind::kUsage,
            fmt::format("token id {} is outside the vocabulary of {}", id, tokenizer.vocab_size()),
            "tokens"};
      }
    }
    return json::object{{"prompt", tokenizer.Decode(ids, {})}};
  };
  AnswerFromWorker(std::move(exchange), Dialect::kCompletions, decode);
}

// Of one's own tenant, or of all where the server is open to its administrator.
void ApiService::ShowRequests(std::shared_ptr<Exchange> exchange) {
  const std::optional<Tenant> tenant = options_.keys.Authenticate(exchange->request());
  const std::string salt = options_.enable_admin || !tenant ? "" : SaltOf(*tenant, "");
  engine_->Visit([this, exchange, salt](engine::Engine& engine) mutable {
    const sched::Scheduler& scheduler = engine.scheduler();
    json::array list;
    const auto add = [&](SequenceId id) {
      const sched::Request& request = scheduler.request(scheduler.sequence(id).request).request;
      if (request.cache_salt.starts_with(salt)) list.push_back(SequenceBody(scheduler, id));
    };
    for (const SequenceId id : scheduler.running()) add(id);
    for (const SequenceId id : scheduler.waiting()) add(id);
    loop_.Post([exchange = std::move(exchange), list = std::move(list)] {
      AnswerJson(*exchange, {{"object", "list"}, {"data", list}});
    });
  });
}

void ApiService::ResetPrefixCache(std::shared_ptr<Exchange> exchange) {
  engine_->Visit([this, exchange](engine::Engine& engine) mutable {
    engine.DropCachedPrefixes();
    loop_.Post([exchange = std::move(exchange)] { AnswerJson(*exchange, {{"status", "ok"}}); });
  });
}

}  // namespace quire::server
