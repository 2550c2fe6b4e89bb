#include "server/api_service.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/exhaustion.h"
#include "base/rng.h"
#include "kernels/kv_codec.h"
#include "server/http_error.h"
#include "server/openai_format.h"
#include "server/openai_prompts.h"
#include "server/request_json.h"
#include "text/utf8.h"

namespace quire::server {
namespace json = boost::json;

// A request of a client under way. Lives as long as somebody may still tell something about it.
struct ApiService::Call {
  std::shared_ptr<Exchange> exchange;
  Dialect dialect = Dialect::kCompletions;
  DialectRequest asked;
  std::unique_ptr<AnswerFormat> format;             // views asked
  std::vector<engine::CompletionBuilder> builders;  // [prompts]
  std::vector<engine::Ticket> tickets;              // [prompts]
  int sequences_left = 0;
  bool stream_begun = false;
  std::atomic<bool> gone = false;  // nobody waits for it; workers ask
};

// What a worker makes of a body.
struct ApiService::Prepared {
  DialectRequest asked;
  std::vector<sched::Request> requests;  // [prompts]
};

namespace {

void Answer(Exchange& exchange, Dialect dialect, const Error& error, int status) {
  HttpError answer{.status = status, .message = error.message, .param = error.param};
  if (answer.status == 429) answer.headers.push_back({"Retry-After", "1"});
  exchange.Respond(ErrorResponse(dialect, std::move(answer)));
}

constexpr size_t kRequestIdBytesMax = 128;

HttpHeader RequestIdHeader(const ApiRequest& api) {
  return {"x-request-id", api.request_id};
}

void LogUnknownFields(const ApiRequest& api) {
  constexpr size_t kNamesMax = 32;
  if (!spdlog::should_log(spdlog::level::debug)) return;
  for (size_t i = 0; i < std::min(kNamesMax, api.unknown_fields.size()); ++i) {
    spdlog::debug("{}: the field '{:.100}' is not known and ignored", api.request_id,
                  api.unknown_fields[i]);
  }
}

}  // namespace

ApiService::ApiService(IoLoop& loop, ServiceOptions options)
    : loop_(loop), options_(std::move(options)), started_s_(std::time(nullptr)) {}

ApiService::~ApiService() = default;

Status ApiService::Start(std::unique_ptr<engine::Engine> engine) {
  const engine::LoadedModel& model = engine->model();
  if (!options_.chat_template.empty()) {
    QUIRE_ASSIGN_OR_RETURN(chat_template_,
                           engine::MakeChatTemplate(options_.chat_template, model.tokenizer()));
  }
  model_name_ = options_.served_model_name.empty() ? model.name() : options_.served_model_name;
  const kv::KvCacheOptions& cache = engine->scheduler().cache().options();
  metrics_ = std::make_unique<engine::Metrics>(engine::MetricsLabels{
      .model = model_name_,
      .block_tokens = cache.block_tokens,
      .codec = std::string(kernels::Name(engine->store().layout().format().key_codec)),
      .prefix_caching = cache.prefix_caching == kv::PrefixCaching::kOn,
      .speculation = engine->speculates()});
  engine_ = std::make_unique<engine::EngineThread>(
      std::move(engine), *metrics_, [this](std::vector<engine::EngineEvent> events) {
        loop_.Post([this, events = std::move(events)]() mutable { Receive(std::move(events)); });
      });
  return Ok{};
}

void ApiService::Drain(std::function<void()> done) {
  drained_ = std::move(done);
  if (calls_.empty()) drained_();
}

void ApiService::GiveUp() {
  const Error error = MakeError(ErrorKind::kIo, "the server is shutting down");
  for (const CallPtr& call : std::vector(calls_.begin(), calls_.end())) Fail(call, error, 503);
}

void ApiService::AddGuarded(Router& router, std::string_view method, std::string_view path,
                            void (ApiService::*handler)(std::shared_ptr<Exchange>),
                            Dialect dialect) {
  router.Add(method, path, [this, handler, dialect](std::shared_ptr<Exchange> exchange) {
    if (Admit(*exchange, dialect)) (this->*handler)(std::move(exchange));
  });
}

void ApiService::AddRoutes(Router& router) {
  for (const Dialect dialect : kAllDialects) {
    router.Add("POST", UrlOf(dialect), [this, dialect](std::shared_ptr<Exchange> exchange) {
      Generate(dialect, std::move(exchange));
    });
  }
  AddGuarded(router, "POST", "/v1/messages/count_tokens", &ApiService::CountMessageTokens,
             Dialect::kMessages);
  AddGuarded(router, "GET", "/v1/models", &ApiService::ListModels);
  AddGuarded(router, "GET", "/v1/models/{id}", &ApiService::ShowModel);
  AddGuarded(router, "GET", "/v1/requests", &ApiService::ShowRequests);
  AddGuarded(router, "POST", "/v1/embeddings", &ApiService::RefuseEmbeddings);
  AddGuarded(router, "POST", "/tokenize", &ApiService::Tokenize);
  AddGuarded(router, "POST", "/detokenize", &ApiService::Detokenize);
  if (options_.enable_admin) {
    AddGuarded(router, "POST", "/reset_prefix_cache", &ApiService::ResetPrefixCache);
  }
  router.Add("GET", "/health", [](std::shared_ptr<Exchange> exchange) {
    exchange->Respond({.body = R"({"status":"ok"})"});
  });
  router.Add("GET", "/ready", [this](std::shared_ptr<Exchange> exchange) {
    const bool ready = started() && !drained_;
    exchange->Respond({.status = ready ? 200 : 503,
                       .body = ready ? R"({"status":"ready"})" : R"({"status":"not ready"})"});
  });
  router.Add("GET", "/version", [this](std::shared_ptr<Exchange> exchange) {
    exchange->Respond({.body = json::serialize(json::object{{"version", options_.version}})});
  });
  router.Add("GET", "/metrics", [this](std::shared_ptr<Exchange> exchange) {
    if (!started()) return exchange->Respond(ErrorResponse({503, "the model is being loaded"}));
    exchange->Respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                       .body = metrics_->Text(engine_->snapshot())});
  });
}

std::optional<Tenant> ApiService::Admit(Exchange& exchange, Dialect dialect) const {
  std::optional<Tenant> tenant = options_.keys.Authenticate(exchange.request());
  if (!tenant) {
    exchange.Respond(ErrorResponse(
        dialect,
        {.status = 401,
         .message = "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
         .headers = {{"WWW-Authenticate", "Bearer"}}}));
    return std::nullopt;
  }
  if (!started() || drained_) {
    exchange.Respond(ErrorResponse(
        dialect, {.status = 503,
                  .message = drained_ ? "the server is shutting down" : "the model is being loaded",
                  .headers = {{"Retry-After", "5"}}}));
    return std::nullopt;
  }
  return tenant;
}

void ApiService::Generate(Dialect dialect, std::shared_ptr<Exchange> exchange) {
  const std::optional<Tenant> tenant = Admit(*exchange, dialect);
  if (!tenant) return;
  if (calls_preparing_ >= options_.max_queued_requests) {
    return Answer(*exchange, dialect,
                  MakeError(ErrorKind::kExhausted,
                            "{} requests are being prepared already, the limit; try again later",
                            calls_preparing_),
                  HttpStatus(ErrorKind::kExhausted));
  }
  ++calls_preparing_;
  auto call = std::make_shared<Call>();
  call->exchange = std::move(exchange);
  call->dialect = dialect;
  calls_.insert(call);
  const uint64_t key = base::CounterRng(options_.seed, calls_begun_++, 0).NextU64();
  call->exchange->OnClosed([this, weak = std::weak_ptr(call)] {
    if (const CallPtr gone = weak.lock()) Forget(gone);
  });
  auto http = std::make_shared<const HttpRequest>(std::move(call->exchange->request()));
  // The call itself is the I/O thread's alone, up to its last reference.
  loop_.PostToWorker(
      [this, call = std::move(call), http, dialect, tenant = *tenant, key]() mutable {
        if (call->gone) return Return(std::move(call));
        auto prepared = std::make_shared<Result<Prepared>>(
            base::WithinMemory([&] { return Prepare(dialect, *http, tenant, key); }));
        loop_.Post([this, call = std::move(call), prepared] {
          --calls_preparing_;
          if (call->exchange == nullptr) return;  // gone meanwhile
          if (!prepared->ok()) {
            return Fail(call, prepared->error(), HttpStatus(prepared->error().kind));
          }
          Submit(call, *std::move(*prepared));
        });
      });
}

// From a worker: what the I/O thread began it also ends.
void ApiService::Return(CallPtr call) {
  loop_.Post([this, call = std::move(call)] { --calls_preparing_; });
}

Status ApiService::CheckModelName(const std::string& name) const {
  if (name.empty() || name == model_name_) return Ok{};
  return Error{
      ErrorKind::kNotFound,
      fmt::format("there is no model '{:.100}' here; this server has '{}'", name, model_name_),
      "model"};
}

PromptLimits ApiService::Limits() const {
  return {.max_model_len = engine_->max_model_len(),
          .eviction = engine_->eviction(),
          .max_streaming_tokens = options_.max_streaming_tokens,
          .chat_template = chat_template_ ? &*chat_template_ : nullptr};
}

Status ApiService::CheckLimits(const std::vector<sched::Request>& requests) const {
  if (requests.size() > options_.max_queued_requests) {
    return Error{ErrorKind::kUsage,
                 fmt::format("the body has {} prompts, but at most {} requests may wait here; send "
                             "fewer at a time",
                             requests.size(), options_.max_queued_requests),
                 "prompt"};
  }
  for (const sched::Request& request : requests) {
    if (request.sequences() > options_.max_n) {
      return Error{ErrorKind::kUsage,
                   fmt::format("{} sequences are asked for, but this server computes at most {} "
                               "per request",
                               request.sequences(), options_.max_n),
                   "n"};
    }
    const int tokens = static_cast<int>(request.prompt.size());
    if (options_.max_prompt_tokens && tokens > *options_.max_prompt_tokens) {
      return MakeError(ErrorKind::kUsage,
                       "the prompt has {} tokens, but this server takes at most {}; shorten it",
                       tokens, *options_.max_prompt_tokens);
    }
  }
  return Ok{};
}

Result<ApiService::Prepared> ApiService::Prepare(Dialect dialect, const HttpRequest& http,
                                                 const Tenant& tenant, uint64_t key) const {
  QUIRE_ASSIGN_OR_RETURN(const json::value body, ParseBody(http.body));
  const engine::LoadedModel& model = engine_->model();
  Prepared prepared;
  QUIRE_ASSIGN_OR_RETURN(prepared.asked, ParseRequest(dialect, body, model.sampling_defaults()));
  ApiRequest& api = prepared.asked.api;
  QUIRE_RETURN_IF_ERROR(CheckModelName(api.model));
  if (api.stream && api.best_of > api.n) {
    return Error{ErrorKind::kUsage, "'best_of' above 'n' cannot be streamed: all must be known",
                 "best_of"};
  }
  if (api.request_id.empty()) {
    api.request_id =
        http.Header("x-request-id").value_or(fmt::format("{}{:016x}", IdPrefix(dialect), key));
  }
  // Every piece of the answer repeats it.
  api.request_id = text::ToValidUtf8(api.request_id.substr(0, kRequestIdBytesMax));
  LogUnknownFields(api);
  if (options_.log_requests) spdlog::info("{}: {}", api.request_id, http.body);
  api.call_id_seed = key;
  api.cache_salt = SaltOf(tenant, api.cache_salt);
  PromptLimits limits = Limits();
  limits.seed = key;
  QUIRE_ASSIGN_OR_RETURN(prepared.requests, BuildRequests(api, model, limits));
  QUIRE_RETURN_IF_ERROR(CheckLimits(prepared.requests));
  if (api.sampling.constraint) {
    QUIRE_RETURN_IF_ERROR(engine_->PrepareConstraint(*api.sampling.constraint));
  }
  return prepared;
}

void ApiService::Submit(const CallPtr& call, Prepared prepared) {
  call->asked = std::move(prepared.asked);
  const ApiRequest& api = call->asked.api;
  ResponseHeader header{.id = api.request_id, .model = model_name_, .created = std::time(nullptr)};
  for (const sched::Request& request : prepared.requests) {
    header.prompt_tokens += static_cast<int>(request.prompt.size());
  }
  call->format =
      MakeFormat(call->dialect, std::move(header), call->asked, engine_->model().tokenizer());
  for (sched::Request& request : prepared.requests) {
    if (!api.stream) call->builders.emplace_back(request);
    call->sequences_left += request.beam_search ? request.n : request.sequences();
    const int prompt = static_cast<int>(call->tickets.size());
    call->tickets.push_back(engine_->Submit(std::move(request)));
    routes_[call->tickets.back()] = {call, prompt};
  }
}

void ApiService::Receive(std::vector<engine::EngineEvent> events) {
  for (engine::EngineEvent& event : events) {
    const auto found = routes_.find(event.ticket);
    if (found == routes_.end()) continue;  // failed or gone
    const Route route = found->second;
    if (const Error* error = std::get_if<Error>(&event.news)) {
      Fail(route.call, *error, HttpStatus(error->kind));
    } else {
      TakeUpdate(route.call, route.prompt, std::get<engine::SequenceUpdate>(event.news));
    }
  }
}

void ApiService::TakeUpdate(const CallPtr& call, int prompt, engine::SequenceUpdate& update) {
  if (update.finish == sched::FinishReason::kError) {
    // What is not the client's is ours, whatever it is for a file.
    if (update.error->kind != ErrorKind::kContradiction) update.error->kind = ErrorKind::kIo;
    return Fail(call, *update.error, HttpStatus(update.error->kind));
  }
  const bool ends = update.finish.has_value();
  if (call->asked.api.stream) {
    if (!call->stream_begun) {
      call->stream_begun = true;
      call->exchange->StartStream(
          {.content_type = "text/event-stream; charset=utf-8",
           .headers = {{"Cache-Control", "no-cache"}, RequestIdHeader(call->asked.api)}});
      call->exchange->Send(call->format->Begin());
    }
    const int choice = prompt * call->asked.api.n + update.index;
    const std::string events = call->format->Update(choice, update);
    if (!events.empty()) call->exchange->Send(events);
  } else {
    call->builders[prompt].Add(std::move(update));
  }
  if (ends && --call->sequences_left == 0) Finish(call);
}

void ApiService::Finish(const CallPtr& call) {
  if (call->asked.api.stream) {
    call->exchange->Send(call->format->End());
    call->exchange->EndStream();
  } else {
    std::vector<engine::Completion> completions;
    for (engine::CompletionBuilder& builder : call->builders) completions.push_back(builder.Take());
    call->exchange->Respond({.body = json::serialize(call->format->Whole(completions)),
                             .headers = {RequestIdHeader(call->asked.api)}});
  }
  Forget(call);
}

void ApiService::Fail(const CallPtr& call, const Error& error, int status) {
  if (call->stream_begun) {
    call->exchange->Send(call->format->Failure(error));
    call->exchange->EndStream();
  } else {
    Answer(*call->exchange, call->dialect, error, status);
  }
  Forget(call);
}

// Ends whatever of the call is still computed.
void ApiService::Forget(const CallPtr& call) {
  if (call->exchange == nullptr) return;
  call->exchange = nullptr;
  call->gone = true;
  for (const engine::Ticket ticket : call->tickets) {
    if (routes_.erase(ticket) > 0) engine_->Cancel(ticket);
  }
  calls_.erase(call);
  if (drained_ && calls_.empty()) drained_();
}

}  // namespace quire::server
