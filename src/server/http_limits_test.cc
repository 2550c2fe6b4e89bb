// The bounds that hold against clients that are slow, many, or not let in; and how a server ends.
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/http_server.h"
#include "server/http_test_client.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void Echo(const std::shared_ptr<Exchange>& exchange) {
  exchange->Respond({.content_type = "text/plain", .body = exchange->request().path});
}

double SecondsOf(const std::function<void()>& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(HttpTimeouts, AHeaderThatTricklesIsCutOff) {
  TestServer server({.header_timeout_s = 0.3}, Echo);
  TestClient client(server.port());
  const double seconds = SecondsOf([&] {
    client.Write("GET / HTTP/1.1\r\n");
    for (int i = 0; i < 100 && client.Write("X: y\r\n"); ++i) {
      if (::recv(client.socket(), nullptr, 0, MSG_DONTWAIT | MSG_PEEK) == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      char byte;
      if (::recv(client.socket(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1) break;
    }
    EXPECT_EQ(client.ReadResponse().status, 408);
  });
  EXPECT_LT(seconds, 1.5);
  EXPECT_EQ(server.statistics().requests_rejected, 1u);
}

TEST(HttpTimeouts, ABodyThatDoesNotComeIsCutOff) {
  TestServer server({.body_timeout_s = 0.2}, Echo);
  TestClient client(server.port());
  EXPECT_EQ(client.Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").status, 408);
}

TEST(HttpTimeouts, IdleAndSilentConnectionsCloseWithoutAWord) {
  TestServer server({.header_timeout_s = 0.2, .idle_timeout_s = 0.2}, Echo);
  TestClient silent(server.port());
  EXPECT_EQ(silent.ReadToEnd(), "");
  TestClient idle(server.port());
  EXPECT_EQ(idle.Ask(Get("/a")).body, "/a");
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_EQ(server.statistics().connections_open, 0);
}

TEST(HttpTimeouts, AnAnswerMayTakeLongerThanEveryTimeout) {
  std::shared_ptr<Exchange> held;
  TestServer server({.header_timeout_s = 0.1,
                     .body_timeout_s = 0.1,
                     .idle_timeout_s = 0.1,
                     .write_timeout_s = 0.1},
                    [&](auto exchange) { held = std::move(exchange); });
  TestClient client(server.port());
  client.Write(Get("/"));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  server.OnIoThread([&] { std::exchange(held, nullptr)->Respond({.body = "late"}); });
  EXPECT_EQ(client.ReadResponse().body, "late");
}

TEST(HttpTimeouts, AReaderThatStopsIsCutOff) {
  TestServer server({.write_timeout_s = 0.3},
                    [](auto exchange) { exchange->Respond({.body = std::string(64 << 20, 'x')}); });
  TestClient client(server.port());
  client.Write(Get("/"));
  EXPECT_TRUE(
      server.Eventually([&] { return server.server().statistics().slow_readers_cut_off == 1; }));
  EXPECT_EQ(server.statistics().connections_open, 0);
}

TEST(HttpLimits, ASlowReaderOfAStreamIsBounded) {
  std::shared_ptr<Exchange> held;
  bool closed = false;
  TestServer server({.max_queued_bytes = 1 << 20}, [&](auto exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->OnClosed([&] { closed = true; });
    held = std::move(exchange);
  });
  TestClient client(server.port());
  client.Write(Get("/"));
  const std::string piece(16 << 10, 'x');
  size_t queued_max = 0;
  EXPECT_TRUE(server.Eventually([&] {
    if (held == nullptr) return false;
    for (int i = 0; i < 10; ++i) {
      held->Send(piece);
      queued_max = std::max(queued_max, held->bytes_queued());
    }
    return closed;
  }));
  server.OnIoThread([&] { held.reset(); });
  EXPECT_GT(queued_max, 1u << 20);
  EXPECT_LT(queued_max, (1u << 20) + 2 * piece.size());
  EXPECT_EQ(server.statistics().slow_readers_cut_off, 1u);
}

TEST(HttpLimits, ConnectionsBeyondTheLimitAreRefusedUntilOneEnds) {
  TestServer server({.max_connections = 2}, Echo);
  TestClient first(server.port());
  auto second = std::make_unique<TestClient>(server.port());
  EXPECT_EQ(first.Ask(Get("/1")).status, 200);
  EXPECT_EQ(second->Ask(Get("/2")).status, 200);
  TestClient third(server.port());
  const TestResponse refused = third.ReadResponse();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.Has("Retry-After: 1\r\n"));
  EXPECT_TRUE(refused.Has("Connection: close\r\n"));
  EXPECT_EQ(third.ReadToEnd(), "");
  EXPECT_EQ(server.statistics().connections_refused, 1u);
  second.reset();
  EXPECT_TRUE(
      server.Eventually([&] { return server.server().statistics().connections_open == 1; }));
  TestClient fourth(server.port());
  EXPECT_EQ(fourth.Ask(Get("/4")).status, 200);
}

TEST(HttpLimits, OneAddressMayHaveItsOwnLimit) {
  TestServer server({.max_connections_per_address = 1}, Echo);
  TestClient first(server.port());
  EXPECT_EQ(first.Ask(Get("/1")).status, 200);
  TestClient second(server.port());
  EXPECT_EQ(second.ReadResponse().status, 503);
}

TEST(HttpCors, IsOffUnlessOriginsAreAllowed) {
  TestServer server({}, Echo);
  TestClient client(server.port());
  const TestResponse response =
      client.Ask("GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n");
  EXPECT_THAT(response.head, Not(HasSubstr("Access-Control")));
}

TEST(HttpCors, AllowedOriginsMayAskAndReadAndOthersMayNot) {
  TestServer server({.allowed_origins = {"https://a.example"}}, Echo);
  TestClient client(server.port());
  const TestResponse preflight = client.Ask(
      "OPTIONS /v1 HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-api-key\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(preflight.Has("Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_TRUE(preflight.Has("Access-Control-Allow-Headers: x-api-key\r\n"));
  EXPECT_TRUE(preflight.Has("Access-Control-Allow-Methods: GET, POST"));
  EXPECT_FALSE(preflight.Has("Content-Length"));
  const TestResponse answer =
      client.Ask("GET /v1 HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n");
  EXPECT_EQ(answer.body, "/v1");
  EXPECT_TRUE(answer.Has("Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_TRUE(answer.Has("Vary: Origin\r\n"));
  const TestResponse other =
      client.Ask("GET /v1 HTTP/1.1\r\nHost: a\r\nOrigin: https://b.example\r\n\r\n");
  EXPECT_THAT(other.head, Not(HasSubstr("Access-Control")));
  EXPECT_TRUE(other.Has("Vary: Origin\r\n"));
}

TEST(HttpHeadersOfAnswers, CannotBreakOutOfTheirLine) {
  TestServer server({}, [](auto exchange) {
    exchange->Respond({.headers = {{"X-Id", "a\r\nSet-Cookie: b"}}});
  });
  TestClient client(server.port());
  EXPECT_TRUE(client.Ask(Get("/")).Has("X-Id: a  Set-Cookie: b\r\n"));
}

TEST(HttpServerEnd, DrainingAnswersWhatIsOwedAndClosesTheRest) {
  std::shared_ptr<Exchange> held;
  TestServer server({}, [&](auto exchange) {
    if (exchange->request().path == "/hold") {
      held = std::move(exchange);
    } else {
      Echo(exchange);
    }
  });
  TestClient idle(server.port());
  TestClient busy(server.port());
  EXPECT_EQ(idle.Ask(Get("/a")).status, 200);
  busy.Write(Get("/hold"));
  EXPECT_TRUE(server.Eventually([&] { return held != nullptr; }));
  server.OnIoThread([&] {
    server.server().StopAccepting();
    server.server().CloseIdle();
  });
  EXPECT_EQ(idle.ReadToEnd(), "");
  const int late = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(late, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(late);
  server.OnIoThread([&] { std::exchange(held, nullptr)->Respond({.body = "owed"}); });
  const TestResponse owed = busy.ReadResponse();
  EXPECT_EQ(owed.body, "owed");
  EXPECT_TRUE(owed.Has("Connection: close\r\n"));
  EXPECT_EQ(busy.ReadToEnd(), "");
}

std::string ListenError(HttpOptions options) {
  boost::asio::io_context io;
  HttpServer server(io, std::move(options), Echo);
  const Status listening = server.Listen();
  EXPECT_FALSE(listening.ok());
  return listening.ok() ? "" : listening.error().message;
}

TEST(HttpListen, SaysInASentenceWhatIsWrong) {
  TestServer server({}, Echo);
  EXPECT_THAT(ListenError({.port = server.port()}),
              HasSubstr(fmt::format("cannot listen at port {} of 127.0.0.1: Address already in use",
                                    server.port())));
  EXPECT_THAT(ListenError({.host = "192.0.2.1", .port = 0}), HasSubstr("host '192.0.2.1'"));
  EXPECT_THAT(ListenError({.host = "no such host", .port = 0}), HasSubstr("host 'no such host'"));
  EXPECT_THAT(ListenError({.port = 0, .ssl_certfile = "a.pem"}), HasSubstr("--ssl-keyfile"));
  EXPECT_THAT(
      ListenError({.port = 0, .ssl_certfile = "/nonexistent/a.pem", .ssl_keyfile = "b.pem"}),
      HasSubstr("/nonexistent/a.pem cannot be used as --ssl-certfile: No such file"));
}

TEST(HttpListen, TakesNamesAndTheOtherFamilyOfAddresses) {
  for (const char* host : {"localhost", "0.0.0.0", "::1"}) {
    boost::asio::io_context io;
    HttpServer server(io, {.host = host, .port = 0}, Echo);
    const Status listening = server.Listen();
    if (!listening.ok() && std::string(host) == "::1") continue;  // a machine without IPv6
    EXPECT_TRUE(listening.ok()) << host;
    EXPECT_NE(server.port(), 0);
  }
}

}  // namespace
}  // namespace quire::server
