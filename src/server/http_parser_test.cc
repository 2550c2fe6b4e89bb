// The parser of requests and of their targets, byte by byte.
#include "server/http_parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_target.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using State = HttpParser::State;

// Feeds `text` in pieces of `size`, as a connection does: what is not taken is offered again.
// Returns what is left over.
std::string FeedInPieces(HttpParser& parser, std::string_view text, size_t size) {
  std::string input;
  for (size_t at = 0; at < text.size(); at += size) {
    input += text.substr(at, size);
    input.erase(0, parser.Feed(input));
  }
  return input;
}

constexpr std::string_view kChunked =
    "POST /a?b=c HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    "4\r\nfour\r\n006;name=\"value\"\r\n chunk\r\n0\r\nTrailer: x\r\n\r\n";

TEST(HttpParser, ARequestMayArriveInPiecesOfAnySize) {
  const HttpOptions limits;
  for (size_t size = 1; size <= kChunked.size(); ++size) {
    HttpParser parser(limits);
    EXPECT_THAT(FeedInPieces(parser, kChunked, size), IsEmpty());
    ASSERT_EQ(parser.state(), State::kComplete) << "pieces of " << size;
    const HttpRequest request = parser.TakeRequest();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/a");
    EXPECT_THAT(request.query, ElementsAre(Pair("b", "c")));
    EXPECT_EQ(request.Header("x-one"), "1");
    EXPECT_FALSE(request.Header("trailer"));
    EXPECT_EQ(request.body, "four chunk");
  }
}

TEST(HttpParser, ARequestCutAnywhereIsNotCompleteBeforeItsLastByte) {
  const HttpOptions limits;
  for (const std::string& text :
       {std::string(kChunked),
        std::string("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"),
        std::string("GET / HTTP/1.0\r\n\r\n")}) {
    for (size_t cut = 0; cut < text.size(); ++cut) {
      HttpParser parser(limits);
      std::string input = text.substr(0, cut);
      input.erase(0, parser.Feed(input));
      ASSERT_TRUE(parser.state() == State::kHeader || parser.state() == State::kBody) << cut;
      input += text.substr(cut);
      input.erase(0, parser.Feed(input));
      ASSERT_EQ(parser.state(), State::kComplete) << cut;
      EXPECT_THAT(input, IsEmpty());
    }
  }
}

TEST(HttpParser, WhatFollowsARequestIsLeftForTheNext) {
  const HttpOptions limits;
  const std::string first = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
  HttpParser parser(limits);
  EXPECT_EQ(parser.Feed(first + "GET /next"), first.size());
  EXPECT_EQ(parser.TakeRequest().body, "abc");
}

TEST(HttpParser, ALengthThatIsClaimedTakesNoMemory) {
  const HttpOptions limits{.max_body_bytes = size_t{1} << 50};
  HttpParser parser(limits);
  const std::string text =
      fmt::format("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\nabc", size_t{1} << 49);
  EXPECT_EQ(parser.Feed(text), text.size());
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_LT(parser.TakeRequest().body.capacity(), 100u);
}

// Header lines that arrive one by one are taken one by one, and must be counted all the same.
TEST(HttpParser, HeadersAreBoundedInPiecesOfAnySize) {
  const HttpOptions limits{.max_header_bytes = 500};
  std::string text = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("X-{}: some value\r\n", i);
  text += "\r\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    HttpParser parser(limits);
    FeedInPieces(parser, text, size);
    ASSERT_EQ(parser.state(), State::kFailed) << size;
    EXPECT_EQ(parser.failure_status(), 431) << size;
  }
}

TEST(HttpParser, TheLinesAroundChunksAreBounded) {
  const HttpOptions limits{.max_header_bytes = 500};
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& endless : {"1;x=" + std::string(1000, 'a'),
                                     "0\r\nX: " + std::string(1000, 'a'), std::string(1000, '1')}) {
    for (size_t size : {1, 7, 100, 5000}) {
      HttpParser parser(limits);
      FeedInPieces(parser, head + endless, size);
      EXPECT_EQ(parser.state(), State::kFailed) << endless.substr(0, 5) << " in " << size;
    }
  }
}

TEST(HttpParser, ChunkedBodiesAreBoundedInPiecesOfAnySize) {
  const HttpOptions limits{.max_body_bytes = 9};
  for (size_t size = 1; size <= kChunked.size(); ++size) {
    HttpParser parser(limits);
    FeedInPieces(parser, kChunked, size);
    ASSERT_EQ(parser.state(), State::kFailed);
    EXPECT_EQ(parser.failure_status(), 413);
  }
}

TEST(HttpParser, KeepAliveFollowsVersionAndConnection) {
  const HttpOptions limits;
  struct Case {
    const char* text;
    bool keep_alive;
  };
  for (const Case& c : {Case{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
                        Case{"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n", false},
                        Case{"GET / HTTP/1.0\r\n\r\n", false},
                        Case{"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true}}) {
    HttpParser parser(limits);
    parser.Feed(c.text);
    ASSERT_EQ(parser.state(), State::kComplete) << c.text;
    EXPECT_EQ(parser.keep_alive(), c.keep_alive) << c.text;
  }
}

HttpTarget Target(std::string_view text) {
  Result<HttpTarget> target = ParseHttpTarget(text);
  EXPECT_TRUE(target.ok()) << text;
  return target.ok() ? *target : HttpTarget{};
}

TEST(HttpTarget, PathAndQueryAreDecoded) {
  const HttpTarget target = Target("/v1/a%2Fb+c/%C3%A9?x=1&y=%26%3d+z&&flag&=v&x=2");
  EXPECT_EQ(target.path, "/v1/a/b+c/é");
  EXPECT_THAT(target.query, ElementsAre(Pair("x", "1"), Pair("y", "&= z"), Pair("flag", ""),
                                        Pair("", "v"), Pair("x", "2")));
}

TEST(HttpTarget, AbsoluteFormsLoseSchemeAndHost) {
  EXPECT_EQ(Target("http://host:80/a/b?c=d").path, "/a/b");
  EXPECT_EQ(Target("https://host").path, "/");
  EXPECT_EQ(Target("http://host?c=d").path, "/");
  EXPECT_THAT(Target("http://host?c=d").query, ElementsAre(Pair("c", "d")));
  EXPECT_EQ(Target("*").path, "*");
}

TEST(HttpTarget, WhatIsNoTargetIsRefused) {
  for (const char* text : {"", "a", "a/b", "?a=b", "host:443", "**", "/a#b", "/a?b#c", "/%", "/%1",
                           "/%1g", "/%00", "/?a=%00", "/%80", "/?%ff=1", "/%ed%a0%80"}) {
    EXPECT_FALSE(ParseHttpTarget(text).ok()) << text;
  }
}

}  // namespace
}  // namespace quire::server
