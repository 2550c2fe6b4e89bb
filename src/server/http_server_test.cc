// What a client sees of the HTTP layer, byte for byte, over real sockets.
#include "server/http_server.h"

#include <deque>

#include <gmock/gmock.h>

#include "server/http_test_client.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers with what it was asked; keeps what comes to /hold; streams at /stream and never ends at
// /endless; forgets /forget.
class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    server_ = std::make_unique<TestServer>(std::move(options),
                                           [this](auto exchange) { Handle(std::move(exchange)); });
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    server_->OnIoThread([&] { held_.clear(); });
    server_.reset();
  }

  void Handle(std::shared_ptr<Exchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (request.path == "/forget") return;
    if (request.path == "/hold") {
      exchange->OnClosed([this] { ++closed_; });
      held_.push_back(std::move(exchange));
      return;
    }
    if (request.path == "/stream" || request.path == "/endless") {
      exchange->StartStream({.content_type = "text/event-stream"});
      for (const char* piece : {"data: 1\n\n", "", "data: 2\n\n"}) exchange->Send(piece);
      if (request.path == "/stream") return exchange->EndStream();
      exchange->OnClosed([this] { ++closed_; });
      held_.push_back(std::move(exchange));
      return;
    }
    std::string text = request.method + " " + request.path;
    for (const auto& [name, value] : request.query) text += " " + name + "=" + value;
    exchange->Respond({.content_type = "text/plain", .body = text + " " + request.body});
  }

  TestClient Connect() { return TestClient(server_->port()); }
  // One request on a connection of its own.
  TestResponse Ask(std::string_view request) {
    TestClient client(server_->port());
    return client.Ask(request);
  }
  void WaitForHeld(size_t count) {
    ASSERT_TRUE(server_->Eventually([&] { return held_.size() >= count; }));
  }
  void RespondHeld(size_t index, std::string body) {
    server_->OnIoThread([&] { held_[index]->Respond({.body = std::move(body)}); });
  }
  void ExpectErrorBody(const TestResponse& response, int status) {
    EXPECT_EQ(response.status, status) << response.head;
    EXPECT_THAT(response.head, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_THAT(response.body, StartsWith("{\"error\":{\"message\":\""));
    EXPECT_THAT(response.body, HasSubstr("\"code\":" + std::to_string(status)));
  }

  std::unique_ptr<TestServer> server_;
  // Of the I/O thread.
  std::deque<std::shared_ptr<Exchange>> held_;
  int closed_ = 0;
};

TEST_F(HttpServerTest, AnswersARequestWithWhatTheHandlerSays) {
  Start();
  const TestResponse response = Ask(Post("/a%20b?x=1&y=a+b", "body"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST /a b x=1 y=a b body");
  EXPECT_THAT(response.head, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(response.head, HasSubstr("Content-Type: text/plain\r\n"));
  EXPECT_THAT(response.head, Not(HasSubstr("Server:")));
  EXPECT_THAT(response.head, Not(HasSubstr("Connection:")));
}

TEST_F(HttpServerTest, KeepsAConnectionForTheNextRequest) {
  Start();
  TestClient client(server_->port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Ask(Get("/again")).body, "GET /again ");
  EXPECT_EQ(server_->statistics().connections_accepted, 1u);
  EXPECT_EQ(server_->statistics().requests, 3u);
}

TEST_F(HttpServerTest, ClosesAfterTheAnswerWhenAskedTo) {
  Start();
  TestClient client(server_->port());
  client.Write("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(all, HasSubstr("GET /a "));
}

TEST_F(HttpServerTest, Http10ConnectionsCloseUnlessTheClientAsksToKeepThem) {
  Start();
  TestClient closing(server_->port());
  closing.Write("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_THAT(closing.ReadToEnd(), HasSubstr("Connection: close\r\n"));
  TestClient keeping(server_->port());
  const std::string request = "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  EXPECT_TRUE(keeping.Ask(request).Has("Connection: keep-alive\r\n"));
  EXPECT_EQ(keeping.Ask(request).status, 200);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrderThoughTheFirstIsSlow) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/hold") + Get("/second") + Post("/third", "3"));
  WaitForHeld(1);
  EXPECT_EQ(server_->statistics().requests, 1u);
  RespondHeld(0, "first");
  EXPECT_EQ(client.ReadResponse().body, "first");
  EXPECT_EQ(client.ReadResponse().body, "GET /second ");
  EXPECT_EQ(client.ReadResponse().body, "POST /third 3");
}

TEST_F(HttpServerTest, WhatAClientSendsAheadIsBufferedUpToABound) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/hold"));
  WaitForHeld(1);
  const timeval patience{1, 0};
  ::setsockopt(client.socket(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const std::string ahead = Post("/ahead", std::string(64 << 20, 'x'));
  EXPECT_FALSE(client.Write(ahead)) << "64 MiB fit nowhere";
  EXPECT_LT(server_->statistics().bytes_received, 200u << 10);
}

TEST_F(HttpServerTest, AClientThatSentTooMuchAheadAndLeftIsNoticed) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/hold"));
  WaitForHeld(1);
  client.Write(std::string(40 << 10, 'x'));  // more than is read before the answer
  client.Close();
  EXPECT_TRUE(
      server_->Eventually([&] { return server_->server().statistics().clients_gone == 1; }));
}

TEST_F(HttpServerTest, ARequestMayArriveInTwoPiecesCutAnywhere) {
  Start();
  const std::string request =
      "POST /cut?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4\r\nfour\r\n6;ext=1\r\n chunk\r\n0\r\nTrailer: x\r\n\r\n";
  TestClient client(server_->port());
  for (size_t cut = 1; cut < request.size(); ++cut) {
    client.Write(request.substr(0, cut));
    // Lets the server see the first piece alone, mostly; the parser's test does so always.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    client.Write(request.substr(cut));
    ASSERT_EQ(client.ReadResponse().body, "POST /cut a=b four chunk") << "cut at " << cut;
  }
}

TEST_F(HttpServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  Start();
  TestClient client(server_->port());
  client.Write("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n" + Get("/b"));
  EXPECT_THAT(client.ReadThrough("\r\n\r\n"), HasSubstr("Content-Length: 8\r\n"));
  EXPECT_EQ(client.ReadResponse().body, "GET /b ");
  client.Write("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n" + Get("/b"));
  EXPECT_THAT(client.ReadThrough("\r\n\r\n"), HasSubstr("text/event-stream"));
  EXPECT_EQ(client.ReadResponse().body, "GET /b ");
}

TEST_F(HttpServerTest, StreamsAreChunkedAndLeaveTheConnectionUsable) {
  Start();
  TestClient client(server_->port());
  const TestResponse response = client.Ask(Get("/stream"));
  EXPECT_TRUE(response.Has("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(client.Ask(Get("/after")).body, "GET /after ");
}

TEST_F(HttpServerTest, StreamsToHttp10EndWithTheConnection) {
  Start();
  TestClient client(server_->port());
  client.Write("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_THAT(all, Not(HasSubstr("chunked")));
  EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\ndata: 1\n\ndata: 2\n\n"));
}

TEST_F(HttpServerTest, ExpectContinueIsMetBeforeTheBody) {
  Start();
  TestClient client(server_->port());
  client.Write("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadThrough("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.Ask("ok").body, "POST /e ok");
  ExpectErrorBody(Ask("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: tea\r\n\r\n"),
                  417);
}

TEST_F(HttpServerTest, ATooLargeBodyIsRefusedBeforeItIsSent) {
  Start({.max_body_bytes = 10});
  EXPECT_EQ(Ask(Post("/fits", "0123456789")).status, 200);
  ExpectErrorBody(
      Ask("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n"),
      413);
  ExpectErrorBody(Ask("POST /e HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                      "6\r\nsixsix\r\n5\r\n"),
                  413);
}

TEST_F(HttpServerTest, ARefusalReachesAClientThatIsStillSending) {
  Start({.max_body_bytes = 10});
  TestClient client(server_->port());
  client.Write(Post("/large", std::string(1 << 20, 'x')));
  ExpectErrorBody(client.ReadResponse(), 413);
}

TEST_F(HttpServerTest, LongTargetsAndHeadersAreRefused) {
  Start({.max_header_bytes = 1000, .max_target_bytes = 100});
  ExpectErrorBody(Ask(Get("/" + std::string(100, 'a'))), 414);
  ExpectErrorBody(Ask("GET /" + std::string(2000, 'a')), 414);
  ExpectErrorBody(Ask("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'a')), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) many += "Name-" + std::to_string(i) + ": value\r\n";
  ExpectErrorBody(Ask(many), 431);
}

struct Refused {
  const char* request;
  int status;
};

TEST_F(HttpServerTest, MalformedRequestsGetAnErrorAndTheConnectionCloses) {
  Start();
  const Refused cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / FOO\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},                        // no Host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},  // two
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},            // space before the colon
      {"GET / HTTP/1.1\nHost: a\n\n", 400},                   // bare line feeds
      {"GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400},       // no path
      {"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},          // bad escape
      {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},          // NUL
      {"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400},          // not UTF-8
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\nab", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: "
       "5\r\n\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: "
       "chunked\r\n\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\na",
       501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400},
  };
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.request);
    TestClient client(server_->port());
    ExpectErrorBody(client.Ask(refused.request), refused.status);
    client.EndWriting();
    EXPECT_EQ(client.ReadToEnd(), "");
  }
  const std::string nul = std::string("GET / HTTP/1.1\r\nHost: a\r\nX: ") + '\0' + "\r\n\r\n";
  ExpectErrorBody(Ask(nul), 400);
  EXPECT_EQ(server_->statistics().requests, 0u) << "none of these is a request";
  EXPECT_EQ(server_->statistics().requests_rejected, std::size(cases) + 1);
}

TEST_F(HttpServerTest, FieldsAfterTheLastChunkAreNoHeaders) {
  Start();
  TestClient client(server_->port());
  client.Write(
      "POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\nAuthorization: Bearer stolen\r\n\r\n");
  WaitForHeld(1);
  server_->OnIoThread([&] { EXPECT_FALSE(held_[0]->request().Header("authorization")); });
}

TEST_F(HttpServerTest, AForgottenExchangeIsA500) {
  Start();
  TestClient client(server_->port());
  ExpectErrorBody(client.Ask(Get("/forget")), 500);
  EXPECT_EQ(client.Ask(Get("/next")).status, 200);
}

TEST_F(HttpServerTest, AClientThatGoesAwayClosesItsExchange) {
  Start();
  for (const char* path : {"/hold", "/endless"}) {
    for (const bool resets : {false, true}) {
      TestClient client(server_->port());
      client.Write(Get(path));
      WaitForHeld(1);
      resets ? client.Reset() : client.Close();
      EXPECT_TRUE(server_->Eventually([&] { return closed_ == 1; })) << path;
      server_->OnIoThread([&] {
        EXPECT_TRUE(held_[0]->closed());
        // Whatever is still done with it does nothing.
        held_[0]->StartStream({});
        held_[0]->Send("late");
        held_[0]->EndStream();
        held_[0]->Respond({});
        held_[0]->Abort();
        EXPECT_EQ(held_[0]->bytes_queued(), 0u);
        held_.clear();
        EXPECT_EQ(server_->server().statistics().exchanges_open, 0);
        EXPECT_EQ(server_->server().statistics().connections_open, 0);
        closed_ = 0;
      });
    }
  }
  EXPECT_EQ(server_->statistics().clients_gone, 4u);
}

TEST_F(HttpServerTest, OnClosedIsToldThoughTheClientHasGoneBefore) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/hold"));
  WaitForHeld(1);
  client.Close();
  EXPECT_TRUE(server_->Eventually([&] { return closed_ == 1; }));
  server_->OnIoThread([&] {
    held_[0]->OnClosed([&] { closed_ += 10; });
    EXPECT_EQ(closed_, 1) << "not inside the call";
  });
  EXPECT_TRUE(server_->Eventually([&] { return closed_ == 11; }));
}

TEST_F(HttpServerTest, ACompleteAnswerIsNotReportedAsClosed) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/hold"));
  WaitForHeld(1);
  RespondHeld(0, "done");
  EXPECT_EQ(client.ReadResponse().body, "done");
  client.Close();
  EXPECT_TRUE(
      server_->Eventually([&] { return server_->server().statistics().connections_open == 0; }));
  server_->OnIoThread([&] {
    EXPECT_FALSE(held_[0]->closed());
    EXPECT_EQ(closed_, 0);
  });
}

TEST_F(HttpServerTest, AClientMayEndItsSideBehindARequestThatIsAnsweredAtOnce) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/a"));
  client.EndWriting();
  EXPECT_THAT(client.ReadToEnd(), HasSubstr("GET /a "));
}

TEST_F(HttpServerTest, ACallbackMayHoldTheExchangeThatHoldsIt) {
  Start();
  for (const bool answered : {true, false}) {
    TestClient client(server_->port());
    client.Write(Get("/hold"));
    WaitForHeld(1);
    server_->OnIoThread([&] {
      std::shared_ptr<Exchange> exchange = std::move(held_[0]);
      held_.clear();
      Exchange& only_held_by_its_callback = *exchange;
      exchange->OnClosed([this, exchange] { ++closed_; });
      exchange.reset();
      EXPECT_EQ(server_->server().statistics().exchanges_open, 1);
      if (answered) only_held_by_its_callback.Respond({.body = "answer"});
    });
    EXPECT_EQ(answered ? client.ReadResponse().body : "answer", "answer");
    client.Close();
    EXPECT_TRUE(server_->Eventually([&] {
      return server_->server().statistics().exchanges_open == 0 && closed_ == (answered ? 0 : 1);
    }));
  }
}

TEST_F(HttpServerTest, AnAbortedStreamHasNoEnd) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/endless"));
  EXPECT_THAT(client.ReadThrough("data: 2\n\n\r\n"), HasSubstr("data: 1\n\n"));
  server_->OnIoThread([&] { held_[0]->Abort(); });
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(server_->Eventually([&] { return closed_ == 1; }));
}

TEST_F(HttpServerTest, PiecesSentTogetherGoOutInOneWrite) {
  Start();
  TestClient client(server_->port());
  client.Write(Get("/endless"));
  client.ReadThrough("data: 2\n\n\r\n");
  EXPECT_TRUE(server_->Eventually([&] { return held_[0]->bytes_queued() == 0; }));
  server_->OnIoThread([&] {
    for (int i = 0; i < 100; ++i) held_[0]->Send("x");
    EXPECT_EQ(held_[0]->bytes_queued(), 600u);
  });
  char bytes[1000];
  EXPECT_EQ(::recv(client.socket(), bytes, sizeof(bytes), 0), 600);
}

}  // namespace
}  // namespace quire::server
