// What the tests of the HTTP layer share: a server on its own I/O thread, and a client that sends
// exactly the bytes it is told to, over a blocking socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/http_server.h"

namespace quire::server {

class TestServer {
 public:
  TestServer(HttpOptions options, HttpHandler handler) : work_(io_.get_executor()) {
    options.port = 0;
    server_.emplace(io_, std::move(options), std::move(handler));
    const Status listening = server_->Listen();
    EXPECT_TRUE(listening.ok()) << (listening.ok() ? "" : listening.error().message);
    port_ = server_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~TestServer() {
    OnIoThread([&] { server_.reset(); });
    // With the server gone nothing may keep the loop busy.
    work_.reset();
    thread_.join();
  }

  uint16_t port() const { return port_; }
  boost::asio::io_context& io() { return io_; }
  HttpServer& server() { return *server_; }

  void OnIoThread(std::function<void()> function) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }
  HttpStatistics statistics() {
    HttpStatistics result;
    OnIoThread([&] { result = server_->statistics(); });
    return result;
  }
  // Until `condition`, asked on the I/O thread, holds; false after ten seconds.
  bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000; ++i) {
      bool holds = false;
      OnIoThread([&] { holds = condition(); });
      if (holds) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::optional<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

struct TestResponse {
  int status = 0;
  std::string head;
  std::string body;

  bool Has(std::string_view line) const { return head.find(line) != std::string::npos; }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    const int at_once = 1;  // two writes are two packets
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::connect(socket_, generic, sizeof(address)), 0);
  }
  ~TestClient() { Close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  int socket() const { return socket_; }

  // False once the server has closed.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Appends what arrives to the buffer; false at the end of the connection, or after ten seconds.
  bool Read() {
    char bytes[16384];
    const ssize_t got = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  // Everything up to and including `mark`; what there was if the connection ended before it.
  std::string ReadThrough(std::string_view mark) {
    size_t at = buffer_.find(mark);
    while (at == std::string::npos && Read()) at = buffer_.find(mark);
    return TakeFront(at == std::string::npos ? buffer_.size() : at + mark.size());
  }
  std::string ReadToEnd() {
    while (Read()) {
    }
    return TakeFront(buffer_.size());
  }
  // One response with Content-Length, or chunked (the body is then put together).
  TestResponse ReadResponse() {
    TestResponse response;
    response.head = ReadThrough("\r\n\r\n");
    if (response.head.size() > 12) response.status = std::atoi(response.head.c_str() + 9);
    if (response.Has("Transfer-Encoding: chunked\r\n")) {
      while (true) {
        const size_t size = std::strtoul(ReadThrough("\r\n").c_str(), nullptr, 16);
        response.body += ReadBytes(size);
        ReadThrough("\r\n");
        if (size == 0) return response;
      }
    }
    const size_t length = response.head.find("Content-Length: ");
    if (length != std::string::npos) {
      response.body = ReadBytes(std::strtoul(response.head.c_str() + length + 16, nullptr, 10));
    }
    return response;
  }
  TestResponse Ask(std::string_view request) {
    Write(request);
    return ReadResponse();
  }
  void EndWriting() { ::shutdown(socket_, SHUT_WR); }
  void Close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void Reset() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }

 private:
  std::string ReadBytes(size_t count) {
    while (buffer_.size() < count && Read()) {
    }
    return TakeFront(std::min(count, buffer_.size()));
  }
  std::string TakeFront(size_t count) {
    std::string front = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return front;
  }

  int socket_;
  std::string buffer_;
};

inline std::string Get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}
inline std::string Post(std::string_view path, std::string_view body) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

}  // namespace quire::server
