#include "server/http_stream.h"

#include <utility>

#include <boost/asio/ssl/stream.hpp>
#include <poll.h>

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

void CloseSocket(tcp::socket& socket, HttpStream::CloseMode mode) {
  error_code ignored;
  if (mode == HttpStream::CloseMode::kReset) {
    socket.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  socket.close(ignored);
}

bool HasHungUp(tcp::socket& socket) {
  pollfd asked{socket.native_handle(), POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) > 0;
}

class TcpStream : public HttpStream {
 public:
  explicit TcpStream(tcp::socket socket) : socket_(std::move(socket)) {}

  void Handshake(Done done) override { done({}); }
  void ReadSome(asio::mutable_buffer buffer, Transferred done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void WriteSome(asio::const_buffer buffer, Transferred done) override {
    socket_.async_write_some(buffer, std::move(done));
  }
  void EndWriting(Done done) override {
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
    asio::post(socket_.get_executor(), [done = std::move(done), ec] { done(ec); });
  }
  void Close(CloseMode mode) override { CloseSocket(socket_, mode); }
  bool has_hung_up() override { return HasHungUp(socket_); }

 private:
  tcp::socket socket_;
};

class TlsStream : public HttpStream {
 public:
  TlsStream(tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {}

  void Handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void ReadSome(asio::mutable_buffer buffer, Transferred done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void WriteSome(asio::const_buffer buffer, Transferred done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void EndWriting(Done done) override { stream_.async_shutdown(std::move(done)); }
  void Close(CloseMode mode) override { CloseSocket(stream_.next_layer(), mode); }
  bool has_hung_up() override { return HasHungUp(stream_.next_layer()); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<HttpStream> MakeTcpStream(tcp::socket socket) {
  return std::make_unique<TcpStream>(std::move(socket));
}

std::unique_ptr<HttpStream> MakeTlsStream(tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsStream>(std::move(socket), context);
}

}  // namespace quire::server
