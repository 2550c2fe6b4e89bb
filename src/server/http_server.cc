#include "server/http_server.h"

#include <chrono>
#include <optional>
#include <unordered_map>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <openssl/ssl.h>

#include "server/http_connection.h"
#include "server/http_stream.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// How often deadlines are looked at, while there are connections: one timer for all of them.
constexpr std::chrono::milliseconds kSweepPeriod(50);
// After an accept that failed, mostly for want of file descriptors.
constexpr std::chrono::milliseconds kAcceptRetry(100);
// Connections beyond the limit that are told so at a time; those beyond these are just closed.
constexpr size_t kRefusalsMax = 64;

Error TlsError(std::string param, const std::string& path, const error_code& ec) {
  Error error = MakeError(ErrorKind::kInvalid, "{} cannot be used as --{}: {}", path,
                          param == "ssl_certfile" ? "ssl-certfile" : "ssl-keyfile", ec.message());
  error.param = std::move(param);
  return error;
}

Result<std::unique_ptr<asio::ssl::context>> MakeTlsContext(const HttpOptions& options) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                                    SSL_OP_CIPHER_SERVER_PREFERENCE);
  error_code ec;
  // An encrypted key would make OpenSSL ask at the terminal.
  context->set_password_callback([](size_t, auto) { return std::string(); }, ec);
  context->use_certificate_chain_file(options.ssl_certfile, ec);
  if (ec) return TlsError("ssl_certfile", options.ssl_certfile, ec);
  // This also compares the key with the certificate.
  context->use_private_key_file(options.ssl_keyfile, asio::ssl::context::pem, ec);
  if (ec) return TlsError("ssl_keyfile", options.ssl_keyfile, ec);
  return context;
}

Error HostError(const std::string& host, const error_code& ec) {
  Error error = MakeError(ErrorKind::kUsage,
                          "cannot listen at host '{}': {}; give an address of "
                          "this machine, 127.0.0.1 or 0.0.0.0",
                          host, ec.message());
  error.param = "host";
  return error;
}

Result<tcp::endpoint> Resolve(asio::io_context& io, const HttpOptions& options) {
  // Nobody means every network by it.
  if (options.host.empty()) {
    return MakeError(ErrorKind::kUsage,
                     "--host is empty; name an address to listen at, such as 127.0.0.1, or 0.0.0.0 "
                     "for every network");
  }
  error_code ec;
  const asio::ip::address address = asio::ip::make_address(options.host, ec);
  if (!ec) return tcp::endpoint(address, options.port);
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) return HostError(options.host, ec);
  return found.begin()->endpoint();
}

std::string AddressText(const tcp::socket& socket) {
  error_code ec;
  const asio::ip::address address = socket.remote_endpoint(ec).address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(asio::io_context& io, HttpOptions options, HttpHandler handler)
      : shared_(
            std::make_shared<HttpShared>(HttpShared{io, std::move(options), std::move(handler)})),
        acceptor_(io),
        sweep_timer_(io),
        retry_timer_(io) {}

  Status Listen() {
    const HttpOptions& options = shared_->options;
    if (options.ssl_certfile.empty() != options.ssl_keyfile.empty()) {
      return MakeError(ErrorKind::kUsage,
                       "TLS needs both --ssl-certfile and --ssl-keyfile; one of them is missing");
    }
    if (!options.ssl_certfile.empty()) {
      QUIRE_ASSIGN_OR_RETURN(tls_, MakeTlsContext(options));
    }
    QUIRE_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(shared_->io, options));
    QUIRE_RETURN_IF_ERROR(Bind(endpoint));
    // The server may go before a connection does.
    shared_->on_close = [weak = weak_from_this()](const HttpConnection& connection) {
      if (const auto self = weak.lock()) self->Forget(connection);
    };
    Accept();
    return Ok{};
  }

  uint16_t port() const { return port_; }
  HttpShared& shared() { return *shared_; }

  void StopAccepting() {
    error_code ignored;
    acceptor_.close(ignored);
    retry_timer_.cancel();
  }

  void CloseIdle() {
    shared_->draining = true;
    for (const auto& connection : Connections()) connection->CloseIfIdle();
  }

  void CloseAll() {
    for (const auto& connection : Connections()) connection->Close();
    sweep_timer_.cancel();
  }

 private:
  // A copy: closing a connection takes it out of the set.
  std::vector<std::shared_ptr<HttpConnection>> Connections() const {
    return {shared_->connections.begin(), shared_->connections.end()};
  }

  Status Bind(const tcp::endpoint& endpoint) {
    const HttpOptions& options = shared_->options;
    error_code ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (ec) return HostError(options.host, ec);
    acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) {
      port_ = acceptor_.local_endpoint(ec).port();
      return Ok{};
    }
    error_code ignored;
    acceptor_.close(ignored);
    if (ec == asio::error::address_in_use || ec == asio::error::access_denied) {
      Error error = MakeError(ErrorKind::kUsage,
                              "cannot listen at port {} of {}: {}; choose "
                              "another --port",
                              options.port, options.host, ec.message());
      error.param = "port";
      return error;
    }
    return HostError(options.host, ec);
  }

  void Accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code ec, tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (ec) return self->AcceptLater();
      self->Admit(std::move(socket));
      self->Accept();
    });
  }

  // Without the pause, a want of file descriptors would spin.
  void AcceptLater() {
    retry_timer_.expires_after(kAcceptRetry);
    retry_timer_.async_wait([self = shared_from_this()](error_code ec) {
      if (!ec && self->acceptor_.is_open()) self->Accept();
    });
  }

  void Admit(tcp::socket socket) {
    HttpStatistics& statistics = shared_->statistics;
    ++statistics.connections_accepted;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    std::string address = AddressText(socket);
    const int limit_here = shared_->options.max_connections_per_address;
    const bool has_room = statistics.connections_open < shared_->options.max_connections &&
                          (limit_here == 0 || connections_by_address_[address] < limit_here);
    if (has_room) {
      ++statistics.connections_open;
      ++connections_by_address_[address];
    } else {
      ++statistics.connections_refused;
      const size_t admitted = static_cast<size_t>(statistics.connections_open);
      const size_t refusals = shared_->connections.size() - admitted;
      // A handshake is dear; a client refused by TLS sees the connection close.
      if (tls_ != nullptr || refusals >= kRefusalsMax) return;
    }
    auto stream = tls_ != nullptr ? MakeTlsStream(std::move(socket), *tls_)
                                  : MakeTcpStream(std::move(socket));
    auto connection = std::make_shared<HttpConnection>(
        shared_, std::move(stream), std::move(address),
        has_room ? HttpConnection::Admission::kAdmitted : HttpConnection::Admission::kRefused);
    shared_->connections.insert(connection);
    connection->Start();
    SweepLater();
  }

  void Forget(const HttpConnection& connection) {
    if (connection.admission() == HttpConnection::Admission::kRefused) return;
    --shared_->statistics.connections_open;
    const auto counted = connections_by_address_.find(connection.client_address());
    if (--counted->second == 0) connections_by_address_.erase(counted);
  }

  void SweepLater() {
    if (sweeping_ || shared_->connections.empty()) return;
    sweeping_ = true;
    sweep_timer_.expires_after(kSweepPeriod);
    sweep_timer_.async_wait([self = shared_from_this()](error_code) {
      self->sweeping_ = false;
      const auto now = HttpConnection::Clock::now();
      std::vector<std::shared_ptr<HttpConnection>> late, gone;
      for (const auto& connection : self->shared_->connections) {
        if (connection->IsLate(now)) {
          late.push_back(connection);
        } else if (connection->HasGoneUnnoticed()) {
          gone.push_back(connection);
        }
      }
      for (const auto& connection : late) connection->CutOffLate(now);
      for (const auto& connection : gone) connection->Close();
      self->SweepLater();
    });
  }

  const std::shared_ptr<HttpShared> shared_;
  tcp::acceptor acceptor_;
  std::unique_ptr<asio::ssl::context> tls_;
  asio::steady_timer sweep_timer_;
  asio::steady_timer retry_timer_;
  std::unordered_map<std::string, int> connections_by_address_;
  uint16_t port_ = 0;
  bool sweeping_ = false;
};

HttpServer::HttpServer(boost::asio::io_context& io, HttpOptions options, HttpHandler handler)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
  StopAccepting();
  CloseAll();
}

Status HttpServer::Listen() {
  return impl_->Listen();
}
uint16_t HttpServer::port() const {
  return impl_->port();
}
void HttpServer::StopAccepting() {
  impl_->StopAccepting();
}
void HttpServer::CloseIdle() {
  impl_->CloseIdle();
}
void HttpServer::CloseAll() {
  impl_->CloseAll();
}
const HttpStatistics& HttpServer::statistics() const {
  return impl_->shared().statistics;
}

}  // namespace quire::server
