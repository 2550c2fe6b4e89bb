// Which handler a request reaches, over an exchange that only remembers its answer.
#include "server/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_error.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RememberedExchange : public Exchange {
 public:
  explicit RememberedExchange(HttpRequest request) : Exchange(std::move(request)) {}
  void Respond(HttpResponse response) override { response_ = std::move(response); }
  void StartStream(HttpResponse) override {}
  void Send(std::string_view) override {}
  void EndStream() override {}
  void Abort() override {}
  void OnClosed(std::function<void()>) override {}
  bool closed() const override { return false; }
  size_t bytes_queued() const override { return 0; }

  HttpResponse response_;
};

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    for (const auto& [method, path] : {std::pair("GET", "/v1/models"),
                                       {"GET", "/v1/models/{id}"},
                                       {"POST", "/v1/models/{id}"},
                                       {"DELETE", "/v1/{id}"},
                                       {"POST", "/v1/chat"}}) {
      const std::string name = std::string(method) + " " + path;
      router_.Add(method, path, [this, name](auto exchange) {
        reached_.push_back(name + " id=" + exchange->request().id);
      });
    }
  }
  HttpResponse Ask(std::string method, std::string path) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    auto exchange = std::make_shared<RememberedExchange>(std::move(request));
    router_.Route(exchange);
    return exchange->response_;
  }

  Router router_;
  std::vector<std::string> reached_;
};

TEST_F(RouterTest, ExactRoutesWinThenTheLongestBeginning) {
  Ask("GET", "/v1/models");
  Ask("GET", "/v1/models/a");
  Ask("POST", "/v1/models/org/name");
  Ask("DELETE", "/v1/files");
  EXPECT_THAT(reached_,
              ElementsAre("GET /v1/models id=", "GET /v1/models/{id} id=a",
                          "POST /v1/models/{id} id=org/name", "DELETE /v1/{id} id=files"));
}

TEST_F(RouterTest, HeadIsAnsweredByTheHandlerOfGet) {
  Ask("HEAD", "/v1/models");
  EXPECT_THAT(reached_, ElementsAre("GET /v1/models id="));
}

TEST_F(RouterTest, WhatNoRouteTakesIsA404AndAnEmptyIdIsNone) {
  for (const char* path : {"/", "/v1", "/v1/", "/v2/models", "*", ""}) {
    const HttpResponse response = Ask("GET", path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("\"type\":\"invalid_request_error\",\"param\":null"));
  }
  EXPECT_THAT(reached_, ElementsAre());
}

TEST_F(RouterTest, AnotherMethodIsA405ThatNamesTheAllowedOnes) {
  const HttpResponse response = Ask("PUT", "/v1/models/x");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(FindHeader(response.headers, "allow"), "GET, HEAD, POST");
  EXPECT_EQ(Ask("HEAD", "/v1/chat").status, 405);
  // The exact route is the one that is meant, though {id} would take the path with this method.
  EXPECT_EQ(Ask("DELETE", "/v1/chat").status, 405);
  EXPECT_THAT(reached_, ElementsAre());
}

TEST(HttpErrorBody, IsWhatOpenAiClientsReadWhateverTheMessageHas) {
  EXPECT_EQ(ErrorResponse({.status = 400, .message = "a \"b\"\n\xff", .param = "p"}).body,
            "{\"error\":{\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\",\"type\":"
            "\"invalid_request_error\",\"param\":\"p\",\"code\":400}}");
  EXPECT_THAT(ErrorResponse({.status = 503}).body, HasSubstr("\"type\":\"server_error\""));
}

}  // namespace
}  // namespace quire::server
