// ApiService: the OpenAI API over an engine. The way of a request:
//
//     Exchange -> key, size -> a worker: body, template, tokens -> EngineThread -> events
//              -> AnswerFormat -> Exchange
//
// Owns the requests under way. Everything here runs on the I/O thread unless it says otherwise;
// what takes long runs on workers, and the engine on its own thread. A client that goes away is
// cancelled at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/completion.h"
#include "engine/engine_thread.h"
#include "server/answer_format.h"
#include "server/api_keys.h"
#include "server/dialect.h"
#include "server/io_loop.h"
#include "server/openai_prompts.h"
#include "server/router.h"

namespace quire::server {

struct ServiceOptions {
  std::string served_model_name;  // empty: the model's own
  std::string chat_template;      // Jinja source in place of the model's; empty: the model's
  ApiKeys keys;
  bool enable_admin = false;
  std::string version;
  uint64_t seed = 0;  // whence the seeds of requests that bring none

  size_t max_queued_requests = 1024;     // that are prepared or wait; more are answered with 429
  std::optional<int> max_prompt_tokens;  // absent: what the longest sequence has room for
  int max_streaming_tokens = 32768;      // of an answer beyond the context (policy streaming)
  int max_n = 128;                       // sequences of one request, best_of and beams included
  bool log_requests = false;             // prompts and answers' ids in the log
};

class ApiService {
 public:
  ApiService(IoLoop& loop, ServiceOptions options);
  ~ApiService();  // ends the engine
  ApiService(const ApiService&) = delete;
  ApiService& operator=(const ApiService&) = delete;

  void AddRoutes(Router& router);

  // From here on requests are served; until then /ready and the API answer 503. kInvalid where the
  // chat template that was given cannot be used. The model must outlive the service.
  Status Start(std::unique_ptr<engine::Engine> engine);
  bool started() const { return engine_ != nullptr; }

  // New requests are answered with 503; `done` is called once the last one under way has ended.
  void Drain(std::function<void()> done);

  // Ends what is still under way: with 503, or where an answer has begun with an error event.
  void GiveUp();

  const std::string& model_name() const { return model_name_; }

 private:
  struct Call;
  struct Prepared;
  using CallPtr = std::shared_ptr<Call>;
  // A ticket's call, and which prompt of the body it computes.
  struct Route {
    CallPtr call;
    int prompt = 0;
  };

  // Handlers.
  void Generate(Dialect dialect, std::shared_ptr<Exchange> exchange);
  void ListModels(std::shared_ptr<Exchange> exchange);
  void ShowModel(std::shared_ptr<Exchange> exchange);
  void RefuseEmbeddings(std::shared_ptr<Exchange> exchange);
  void CountMessageTokens(std::shared_ptr<Exchange> exchange);
  void Tokenize(std::shared_ptr<Exchange> exchange);
  void Detokenize(std::shared_ptr<Exchange> exchange);
  void AnswerFromWorker(
      std::shared_ptr<Exchange> exchange, Dialect dialect,
      std::function<Result<boost::json::object>(const std::string& body)> compute);
  void ShowRequests(std::shared_ptr<Exchange> exchange);
  void ResetPrefixCache(std::shared_ptr<Exchange> exchange);

  // The tenant, or an answer with 401 or 503.
  std::optional<Tenant> Admit(Exchange& exchange, Dialect dialect) const;
  void AddGuarded(Router& router, std::string_view method, std::string_view path,
                  void (ApiService::*handler)(std::shared_ptr<Exchange>),
                  Dialect dialect = Dialect::kCompletions);

  // On a worker.
  Result<Prepared> Prepare(Dialect dialect, const HttpRequest& http, const Tenant& tenant,
                           uint64_t key) const;
  void Return(CallPtr call);
  Status CheckLimits(const std::vector<sched::Request>& requests) const;
  Status CheckModelName(const std::string& name) const;
  PromptLimits Limits() const;

  // The way of a call.
  void Submit(const CallPtr& call, Prepared prepared);
  void Receive(std::vector<engine::EngineEvent> events);
  void TakeUpdate(const CallPtr& call, int prompt, engine::SequenceUpdate& update);
  void Finish(const CallPtr& call);
  void Fail(const CallPtr& call, const Error& error, int status);
  void Forget(const CallPtr& call);

  IoLoop& loop_;
  ServiceOptions options_;
  std::string model_name_;
  int64_t started_s_ = 0;                            // seconds since 1970
  std::optional<text::ChatTemplate> chat_template_;  // in place of the model's
  std::unique_ptr<engine::Metrics> metrics_;
  std::unordered_map<engine::Ticket, Route> routes_;
  std::unordered_set<CallPtr> calls_;  // under way
  size_t calls_preparing_ = 0;         // at the workers
  uint64_t calls_begun_ = 0;
  std::function<void()> drained_;                 // set: no new calls
  std::unique_ptr<engine::EngineThread> engine_;  // last: its thread ends first
};

}  // namespace quire::server
