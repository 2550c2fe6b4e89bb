// quire serve: the OpenAI API over HTTP.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include "base/rng.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "server/api_service.h"
#include "server/http_server.h"

namespace quire::cli {
namespace {

// For errors that end answers at the shutdown timeout to reach their clients.
constexpr double kLastWordsSeconds = 0.5;

class ServeCommand : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override {
    return "Serves the model over HTTP, with the OpenAI API.";
  }

  void Declare(base::FlagSet& flags) override {
    engine_.DeclareModel(flags);
    flags.Add("served-model-name", &service_.served_model_name,
              "What clients call the model; by default its file's name.");
    flags.Add("chat-template", &chat_template_path_, "A Jinja template in place of the model's.")
        .Metavar("FILE");
    DeclareNetwork(flags);
    DeclareAccess(flags);
    engine_.DeclareCompute(flags);
    engine_.DeclareServing(flags);
    flags.Example("quire serve --port 8080", "The bundled model at http://127.0.0.1:8080/v1");
    flags.Example("quire serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt",
                  "A model for a network, with keys");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_RETURN_IF_ERROR(Configure());
    server::IoLoop loop;
    RunningModel running;  // outlives the service, whose engine computes with it to the end
    server::ApiService service(loop, service_);
    server::Router router;
    service.AddRoutes(router);
    server::HttpServer http(loop.context(), http_, [&](std::shared_ptr<server::Exchange> exchange) {
      router.Route(std::move(exchange));
    });
    QUIRE_RETURN_IF_ERROR(http.Listen());
    url_ = Url(http.port());
    loop.OnSignal([&] { Stop(loop, service, http); });

    // Loading takes a while: liveness is answered, readiness is not yet.
    Status outcome = Ok{};
    std::thread loader([&] {
      auto loaded = std::make_shared<Result<RunningModel>>(engine_.StartEngine(context.terminal));
      loop.Post([&, loaded] {
        outcome = Begin(std::move(*loaded), running, service);
        outcome = outcome.ok() ? Announce(context, service) : outcome;
        if (!outcome.ok()) loop.Stop();
      });
    });
    loop.Run();
    loader.join();
    return outcome;
  }

 private:
  void DeclareNetwork(base::FlagSet& flags) {
    flags.Group("Network");
    flags.Add("host", &http_.host, "Address to listen at; 0.0.0.0 is every network.");
    flags.Add("port", &port_, "Port to listen at; 0: any free one.").Range(0, 65535);
    flags.Add("ssl-certfile", &http_.ssl_certfile, "TLS certificate chain, PEM.").Metavar("FILE");
    flags.Add("ssl-keyfile", &http_.ssl_keyfile, "TLS private key, PEM.").Metavar("FILE");
    flags.Add("allowed-origin", &http_.allowed_origins,
              "Web pages of this origin may read answers (CORS).");
    flags.Add("allowed-host", &allowed_hosts_,
              "A host name that requests may name besides this machine's own, where the server "
              "listens at loopback; * is any.");
    flags.Add("max-connections", &http_.max_connections, "Most connections at a time.")
        .Range(1, 1'000'000);
    flags
        .Add("max-connections-per-address", &http_.max_connections_per_address,
             "Most connections of one client's address at a time; 0: no such limit.")
        .Range(0, 1'000'000);
    flags.Add("max-body-size", &max_body_, "Largest request body.");
    flags.Add("max-bodies-size", &max_bodies_, "Most memory for bodies of requests that arrive.");
    flags.Add("header-timeout", &http_.header_timeout_s, "How long a request's headers may take.")
        .Unit("seconds")
        .Range(0.1, 3600);
    flags
        .Add("shutdown-timeout", &shutdown_timeout_s_,
             "How long SIGTERM waits for answers under way.")
        .Unit("seconds")
        .Range(0, 86400);
  }

  void DeclareAccess(base::FlagSet& flags) {
    flags.Group("Access");
    flags.Add("api-key", &keys_, "A key that clients must send.");
    flags
        .Add("api-key-file", &key_file_, "Keys, one a line; a second word is the key's cache salt.")
        .Metavar("FILE");
    flags.Add("enable-admin", &service_.enable_admin, "Also serve /reset_prefix_cache.");
    flags.Group("Limits of requests");
    flags
        .Add("max-queued-requests", &max_queued_requests_,
             "Requests that may wait for their turn; more are answered with 429.")
        .Range(1, 1 << 16);
    flags.Add("max-prompt-len", &service_.max_prompt_tokens, "Longest prompt.")
        .Unit("tokens")
        .AtLeast(1);
    flags
        .Add("max-streaming-tokens", &service_.max_streaming_tokens,
             "Longest answer that goes on beyond the context (the eviction policy streaming).")
        .AtLeast(1);
    flags.Add("max-n", &service_.max_n, "Most sequences of one request (n, best_of, beams).")
        .Range(1, 4096);
    flags.Add("log-requests", &service_.log_requests,
              "Log the bodies of requests, prompts included, at level info.");
  }

  Status Configure() {
    http_.port = static_cast<uint16_t>(port_);
    http_.max_body_bytes = static_cast<size_t>(max_body_.bytes);
    http_.max_bodies_bytes = static_cast<size_t>(max_bodies_.bytes);
    if (service_.log_requests) {
      spdlog::set_level(std::min(spdlog::get_level(), spdlog::level::info));
    }
    AllowHosts();
    AllowConnections();
    engine_.SetMaxQueuedRequests(max_queued_requests_);
    service_.max_queued_requests = static_cast<size_t>(max_queued_requests_);
    service_.version = QUIRE_VERSION;
    service_.seed = base::Mix64(engine_.seed() ^ static_cast<uint64_t>(std::time(nullptr)));
    QUIRE_ASSIGN_OR_RETURN(service_.keys, server::ApiKeys::Load(keys_, key_file_));
    if (!chat_template_path_.empty()) {
      QUIRE_ASSIGN_OR_RETURN(service_.chat_template, ReadText(chat_template_path_));
    }
    return Ok{};
  }

  // Who listens at this machine alone is asked under this machine's names alone.
  void AllowHosts() {
    const bool loopback =
        http_.host == "localhost" || http_.host == "::1" || http_.host.starts_with("127.");
    if (!loopback || std::ranges::find(allowed_hosts_, "*") != allowed_hosts_.end()) return;
    http_.allowed_hosts = {"localhost", "127.0.0.1", "[::1]", http_.host};
    http_.allowed_hosts.insert(http_.allowed_hosts.end(), allowed_hosts_.begin(),
                               allowed_hosts_.end());
  }

  // As many files as connections, where the system lets a process have so many.
  void AllowConnections() {
    constexpr rlim_t kOtherFiles = 64;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = static_cast<rlim_t>(http_.max_connections) + kOtherFiles;
    if (limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    // It may have been refused.
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    http_.max_connections = static_cast<int>(std::max<rlim_t>(limit.rlim_cur, 2 * kOtherFiles)) -
                            static_cast<int>(kOtherFiles);
    spdlog::warn("at most {} connections at a time: the system allows {} open files (ulimit -n)",
                 http_.max_connections, limit.rlim_cur);
  }

  static Status Begin(Result<RunningModel> loaded, RunningModel& running,
                      server::ApiService& service) {
    QUIRE_ASSIGN_OR_RETURN(running, std::move(loaded));
    return service.Start(std::move(running.engine));
  }

  Status Announce(const CommandContext& context, const server::ApiService& service) const {
    const std::string& model = service.model_name();
    if (context.json) return WriteJson({{"url", url_}, {"model", model}});
    const char* key = service_.keys.empty() ? "" : "-H 'Authorization: Bearer KEY' ";
    return WriteOut(
        fmt::format("{} serves {} to clients of the OpenAI API until Ctrl-C. Try:\n\n"
                    "  curl {}/v1/completions {}\\\n"
                    "    -H 'Content-Type: application/json' \\\n"
                    "    -d '{{\"prompt\": \"Once upon a time\", \"max_tokens\": 40}}'\n\n",
                    context.terminal.Out(Style::kBold, url_ + "/v1"), model, url_, key));
  }

  std::string Url(uint16_t port) const {
    const char* scheme = http_.ssl_certfile.empty() ? "http" : "https";
    // An IPv6 address stands in brackets (RFC 3986).
    const bool is_ipv6 = http_.host.find(':') != std::string::npos;
    return fmt::format("{}://{}:{}", scheme, is_ipv6 ? "[" + http_.host + "]" : http_.host, port);
  }

  // The first signal lets answers under way finish, up to the timeout; the second one does not.
  void Stop(server::IoLoop& loop, server::ApiService& service, server::HttpServer& http) {
    if (stopping_) {
      http.CloseAll();
      return loop.Stop();
    }
    stopping_ = true;
    http.StopAccepting();
    http.CloseIdle();
    // Loading cannot be interrupted, and has nothing to lose.
    if (!service.started()) std::_Exit(0);
    service.Drain([&] { StopOnceWritten(loop, http); });
    loop.PostAfter(shutdown_timeout_s_, [&] {
      service.GiveUp();
      loop.PostAfter(kLastWordsSeconds, [&] {
        http.CloseAll();
        loop.Stop();
      });
    });
  }

  // What was answered last must still reach clients that read slowly.
  static void StopOnceWritten(server::IoLoop& loop, server::HttpServer& http) {
    http.CloseIdle();
    if (http.statistics().connections_open == 0) return loop.Stop();
    loop.PostAfter(0.02, [&] { StopOnceWritten(loop, http); });
  }

  EngineFlags engine_;
  server::ServiceOptions service_;
  server::HttpOptions http_;
  std::string chat_template_path_;
  std::string key_file_;
  std::vector<std::string> keys_;
  int port_ = 8000;
  std::vector<std::string> allowed_hosts_;
  base::ByteSize max_body_{32 << 20};
  base::ByteSize max_bodies_{512 << 20};
  int max_queued_requests_ = 1024;
  double shutdown_timeout_s_ = 30;
  std::string url_;
  bool stopping_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() {
  return std::make_unique<ServeCommand>();
}

}  // namespace quire::cli
