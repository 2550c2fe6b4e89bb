// Many streaming clients of a server on one thread: good ones, ones that leave, ones that read
// slowly, and ones that ask for nonsense. For tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "base/clock.h"
#include "base/rng.h"
#include "server/http_test_client.h"

namespace quire::cli {

// A request that every server answers alike, and its answer.
struct KnownRequest {
  std::string body;    // streaming
  std::string events;  // of its text, put together; empty: whatever it is
};

class LoadClient {
 public:
  enum class Kind { kGood, kLeaves, kSlow, kBad };

  LoadClient(uint16_t port, Kind kind, const KnownRequest& request, uint64_t patience)
      : client_(port), kind_(kind), request_(request), patience_(patience) {
    client_.Write(server::Post("/v1/completions", kind == Kind::kBad
                                                      ? R"({"prompt":"x","max_tokens":"many"})"
                                                      : request.body));
    if (kind == Kind::kSlow) {
      const int bytes = 2048;  // the kernel must not buffer the answer in its place
      ::setsockopt(client_.socket(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    }
    ::fcntl(client_.socket(), F_SETFL, O_NONBLOCK);
  }

  int socket() const { return client_.socket(); }
  Kind kind() const { return kind_; }
  bool done() const { return done_; }
  bool failed() const { return failed_; }
  const std::string& received() const { return received_; }
  double next_read_s() const { return next_read_s_; }
  // Seconds between the arrivals of two tokens.
  const std::vector<double>& gaps() const { return gaps_; }

  void Read(double now) {
    char bytes[16384];
    const size_t most = kind_ == Kind::kSlow ? 512 : sizeof(bytes);
    const ssize_t got = ::recv(client_.socket(), bytes, most, 0);
    if (kind_ == Kind::kSlow) next_read_s_ = now + 0.02;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return End(Outcome::kFailed);
    const size_t before = received_.size();
    received_.append(bytes, static_cast<size_t>(got));
    if (kind_ == Kind::kBad) {
      constexpr std::string_view kRefusal = "HTTP/1.1 400";
      if (received_.find("\r\n\r\n") == std::string::npos) return;
      return End(Compare(kRefusal, received_.substr(0, kRefusal.size())));
    }
    NoteTokens(before, now);
    if (kind_ == Kind::kLeaves && events_ >= patience_) return End(Outcome::kAsExpected);
    if (!received_.ends_with("\r\n0\r\n\r\n")) return;
    const std::string text = TextOf(received_);
    End(Compare(request_.events.empty() ? text : request_.events, text));
  }

  // The text of a stream's events.
  static std::string TextOf(std::string_view stream) {
    std::string text;
    constexpr std::string_view kMark = "\"text\":";
    for (size_t at = stream.find(kMark); at != std::string_view::npos;
         at = stream.find(kMark, at)) {
      at += kMark.size();
      text += stream.substr(at, stream.find(",\"logprobs\"", at) - at);
    }
    return text;
  }

 private:
  void NoteTokens(size_t before, double now) {
    for (size_t at = received_.find("data: {", before); at != std::string::npos;
         at = received_.find("data: {", at + 1)) {
      if (events_++ > 0) gaps_.push_back(now - last_token_s_);
      last_token_s_ = now;
    }
  }
  enum class Outcome { kFailed, kAsExpected };
  // What should have been received, and what was.
  static Outcome Compare(std::string_view expected, std::string_view received) {
    return received == expected ? Outcome::kAsExpected : Outcome::kFailed;
  }
  void End(Outcome outcome) {
    done_ = true;
    failed_ = outcome == Outcome::kFailed;
    kind_ == Kind::kLeaves ? client_.Reset() : client_.Close();
  }

  server::TestClient client_;
  Kind kind_;
  const KnownRequest& request_;
  uint64_t patience_;  // events until a client leaves
  std::string received_;
  uint64_t events_ = 0;
  double last_token_s_ = 0;
  double next_read_s_ = 0;
  std::vector<double> gaps_;
  bool done_ = false;
  bool failed_ = false;
};

// Waits for news of the clients, and reads them.
inline void ReadAll(std::vector<std::unique_ptr<LoadClient>>& open) {
  double now = base::MonotonicSeconds();
  std::vector<pollfd> sockets;
  for (const auto& client : open) {
    const bool reads = now >= client->next_read_s();
    sockets.push_back({client->socket(), static_cast<short>(reads ? POLLIN : 0), 0});
  }
  ::poll(sockets.data(), sockets.size(), 20);
  now = base::MonotonicSeconds();
  for (size_t i = 0; i < open.size(); ++i) {
    if (sockets[i].revents != 0) open[i]->Read(now);
  }
}

// Every request once, `clients` of them at a time, by clients that read to the end. How many did
// not get an answer.
inline int RunOnce(uint16_t port, const std::vector<KnownRequest>& requests, size_t clients) {
  int failed = 0;
  size_t next = 0;
  std::vector<std::unique_ptr<LoadClient>> open;
  while (next < requests.size() || !open.empty()) {
    while (next < requests.size() && open.size() < clients) {
      open.push_back(
          std::make_unique<LoadClient>(port, LoadClient::Kind::kGood, requests[next++], 0));
    }
    ReadAll(open);
    std::erase_if(open, [&](const std::unique_ptr<LoadClient>& client) {
      failed += client->done() && client->failed();
      return client->done();
    });
  }
  return failed;
}

struct LoadResult {
  int good = 0, left = 0, slow = 0, bad = 0;
  std::vector<std::string> failures;
  std::vector<double> gaps;  // of good clients
};

// Keeps `clients` clients busy for so many seconds and lets the last ones finish. `tick` runs about
// once a second.
inline LoadResult RunLoad(uint16_t port, const std::vector<KnownRequest>& requests, int clients,
                          double seconds, const std::function<void(double)>& tick) {
  LoadResult result;
  base::CounterRng rng(3, 0, 0);
  std::vector<std::unique_ptr<LoadClient>> open;
  const double start = base::MonotonicSeconds();
  double next_tick = start;
  while (true) {
    const double now = base::MonotonicSeconds();
    if (now >= next_tick) {
      tick(now - start);
      next_tick = now + 1;
    }
    while (now < start + seconds && open.size() < static_cast<size_t>(clients)) {
      const uint64_t dice = rng.NextBelow(12);
      const auto kind = dice < 4    ? LoadClient::Kind::kLeaves
                        : dice == 4 ? LoadClient::Kind::kSlow
                        : dice == 5 ? LoadClient::Kind::kBad
                                    : LoadClient::Kind::kGood;
      open.push_back(std::make_unique<LoadClient>(
          port, kind, requests[rng.NextBelow(requests.size())], rng.NextBelow(40)));
    }
    if (open.empty()) return result;
    ReadAll(open);
    std::erase_if(open, [&](const std::unique_ptr<LoadClient>& client) {
      if (!client->done()) return false;
      if (client->failed()) {
        result.failures.push_back(fmt::format("{}: {}", static_cast<int>(client->kind()),
                                              client->received().substr(0, 2000)));
      }
      switch (client->kind()) {
        case LoadClient::Kind::kGood:
          ++result.good;
          result.gaps.insert(result.gaps.end(), client->gaps().begin(), client->gaps().end());
          break;
        case LoadClient::Kind::kLeaves:
          ++result.left;
          break;
        case LoadClient::Kind::kSlow:
          ++result.slow;
          break;
        case LoadClient::Kind::kBad:
          ++result.bad;
          break;
      }
      return true;
    });
  }
}

}  // namespace quire::cli
