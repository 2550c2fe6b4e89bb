// The HTTP layer under many clients at once, and under those that send nonsense.
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include "base/rng.h"
#include "server/http_server.h"
#include "server/http_test_client.h"
#include "testing/sanitized.h"

namespace quire::server {
namespace {

using base::CounterRng;
using testing::kSanitized;

// Streams to whoever asks: a piece a millisecond to every stream, `kPieces` each.
class Streamer {
 public:
  static constexpr int kPieces = 100;

  explicit Streamer(TestServer& server) : timer_(server.io()) {}

  void Handle(std::shared_ptr<Exchange> exchange) {
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->OnClosed([this] { ++closed_; });
    streams_.push_back({std::move(exchange), 0});
    ++started_;
    Tick();
  }
  int started() const { return started_; }
  int closed() const { return closed_; }
  int ended() const { return ended_; }

 private:
  struct Stream {
    std::shared_ptr<Exchange> exchange;
    int sent;
  };

  void Tick() {
    if (std::exchange(ticking_, true)) return;
    timer_.expires_after(std::chrono::milliseconds(1));
    timer_.async_wait([this](boost::system::error_code) {
      ticking_ = false;
      for (Stream& stream : streams_) {
        stream.exchange->Send(fmt::format("data: {}\n\n", stream.sent++));
        if (stream.sent < kPieces) continue;
        if (!stream.exchange->closed()) ++ended_;
        stream.exchange->EndStream();
      }
      std::erase_if(streams_,
                    [](const Stream& s) { return s.sent >= kPieces || s.exchange->closed(); });
      if (!streams_.empty()) Tick();
    });
  }

  boost::asio::steady_timer timer_;
  std::vector<Stream> streams_;
  bool ticking_ = false;
  int started_ = 0, closed_ = 0, ended_ = 0;
};

std::string WholeStream() {
  std::string text;
  for (int i = 0; i < Streamer::kPieces; ++i) text += fmt::format("data: {}\n\n", i);
  return text;
}

TEST(HttpLoad, OfThreeHundredStreamsEveryOneEndsOrIsReportedClosedAndNothingIsLeft) {
  constexpr int kClients = 300;
  const uint64_t seed = std::chrono::steady_clock::now().time_since_epoch().count();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  CounterRng rng(seed, 0, 0);
  std::optional<Streamer> streamer;
  TestServer server({}, [&](auto exchange) { streamer->Handle(std::move(exchange)); });
  server.OnIoThread([&] { streamer.emplace(server); });
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    clients.back()->Write(Get("/"));
  }
  int gone = 0;
  const std::string whole = WholeStream();
  for (int i = 0; i < kClients; ++i) {
    // A third goes: before, during or after its stream, softly or hard.
    if (rng.NextBelow(3) != 0) continue;
    ++gone;
    if (rng.NextBelow(2) == 0)
      clients[i]->ReadThrough(fmt::format("data: {}\n", rng.NextBelow(50)));
    rng.NextBelow(2) == 0 ? clients[i]->Close() : clients[i]->Reset();
    clients[i].reset();
  }
  for (const auto& client : clients) {
    if (client == nullptr) continue;
    EXPECT_EQ(client->ReadResponse().body, whole);
  }
  EXPECT_TRUE(
      server.Eventually([&] { return streamer->closed() + streamer->ended() == kClients; }));
  clients.clear();
  EXPECT_TRUE(
      server.Eventually([&] { return server.server().statistics().connections_open == 0; }));
  const HttpStatistics statistics = server.statistics();
  EXPECT_EQ(statistics.exchanges_open, 0);
  EXPECT_EQ(statistics.requests, static_cast<uint64_t>(kClients));
  server.OnIoThread([&] {
    EXPECT_EQ(streamer->started(), kClients);
    EXPECT_LE(streamer->closed(), gone);
    EXPECT_EQ(statistics.clients_gone, static_cast<uint64_t>(streamer->closed()));
    streamer.reset();
  });
}

TEST(HttpLoad, ClosingAllWhileTheyStreamClosesEveryExchange) {
  constexpr int kClients = 50;
  std::optional<Streamer> streamer;
  TestServer server({}, [&](auto exchange) { streamer->Handle(std::move(exchange)); });
  server.OnIoThread([&] { streamer.emplace(server); });
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    clients.back()->Write(Get("/"));
    clients.back()->ReadThrough("data: 1\n\n");
    if (i == kClients - 1) server.OnIoThread([&] { server.server().CloseAll(); });
  }
  EXPECT_TRUE(
      server.Eventually([&] { return streamer->closed() + streamer->ended() == kClients; }));
  for (const auto& client : clients) client->ReadToEnd();
  server.OnIoThread([&] {
    EXPECT_GT(streamer->closed(), 0);
    EXPECT_EQ(server.server().statistics().connections_open, 0);
  });
  EXPECT_TRUE(server.Eventually([&] { return server.server().statistics().exchanges_open == 0; }));
  server.OnIoThread([&] { streamer.reset(); });
}

// A request that is valid, cut, mutated, repeated or mere noise.
std::string Nonsense(CounterRng& rng) {
  static const std::vector<std::string> kSeeds = {
      Get("/a?b=c"),
      Post("/p", "{\"a\": 1}"),
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
      "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: "
      "keep-alive\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: b\r\nConnection: close\r\n\r\n",
  };
  std::string text;
  for (uint64_t parts = 1 + rng.NextBelow(3); parts > 0; --parts) {
    text += kSeeds[rng.NextBelow(kSeeds.size())];
  }
  for (uint64_t changes = rng.NextBelow(6); changes > 0 && !text.empty(); --changes) {
    const size_t at = rng.NextBelow(text.size());
    switch (rng.NextBelow(4)) {
      case 0:
        text[at] = static_cast<char>(rng.NextBelow(256));
        break;
      case 1:
        text.erase(at, 1 + rng.NextBelow(8));
        break;
      case 2:
        text.insert(at, text.substr(rng.NextBelow(text.size()), rng.NextBelow(30)));
        break;
      case 3:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(HttpLoad, TenThousandConnectionsOfNonsenseLeaveTheServerServing) {
  const int kConnections = kSanitized ? 2000 : 10'000;
  const uint64_t seed = std::chrono::steady_clock::now().time_since_epoch().count();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  CounterRng rng(seed, 0, 0);
  TestServer server({.max_connections = 20'000}, [](auto exchange) {
    if (exchange->request().body.size() % 2 == 1) return;  // forgotten
    exchange->Respond({.body = exchange->request().path});
  });
  for (int i = 0; i < kConnections; ++i) {
    TestClient client(server.port());
    const std::string text = Nonsense(rng);
    const size_t cut = rng.NextBelow(text.size() + 1);
    client.Write(text.substr(0, cut));
    client.Write(text.substr(cut));
    if (rng.NextBelow(2) == 0) client.EndWriting();
    if (rng.NextBelow(4) == 0) client.Reset();
  }
  TestClient client(server.port());
  EXPECT_EQ(client.Ask(Get("/still-here")).body, "/still-here");
  client.Close();
  EXPECT_TRUE(
      server.Eventually([&] { return server.server().statistics().connections_open == 0; }));
  const HttpStatistics statistics = server.statistics();
  EXPECT_EQ(statistics.exchanges_open, 0);
  EXPECT_GT(statistics.requests, 100u);
  EXPECT_GT(statistics.requests_rejected, 100u);
}

}  // namespace
}  // namespace quire::server
