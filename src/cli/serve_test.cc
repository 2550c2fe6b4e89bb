// The server as a process: what a client gets, what it leaves behind, how it ends.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"
#include "cli/serve_process_for_test.h"
#include "server/http_test_client.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using server::Get;
using server::Post;
using server::TestClient;
using server::TestResponse;

std::string WithKey(std::string request, const std::string& key) {
  request.insert(request.find("\r\n") + 2, "Authorization: Bearer " + key + "\r\n");
  return request;
}

TEST(Serve, StreamedPiecesConcatenateToTheWholeAnswer) {
  const ServeProcess server({"--threads", "1"});
  for (const char* more : {R"("temperature":0)", R"("seed":5,"n":3)", R"("seed":9,"stop":["the"])",
                           R"("seed":3,"echo":true,"logprobs":2)"}) {
    const std::string body = std::string(R"({"prompt":"The old man","max_tokens":24,)") + more;
    TestClient client(server.port());
    const TestResponse whole = client.Ask(Post("/v1/completions", body + "}"));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const TestResponse stream = client.Ask(Post("/v1/completions", body + R"(,"stream":true})"));
    EXPECT_TRUE(stream.Has("text/event-stream"));
    EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
    const json::array choices = Body(whole).at("choices").as_array();
    std::vector<std::string> texts(choices.size());
    std::vector<std::string> reasons(choices.size());
    for (const json::object& event : Events(stream.body)) {
      for (const json::value& choice : event.at("choices").as_array()) {
        const auto index = static_cast<size_t>(choice.at("index").as_int64());
        texts[index] += choice.at("text").as_string();
        if (choice.at("finish_reason").is_string()) {
          reasons[index] = choice.at("finish_reason").as_string();
        }
      }
    }
    for (size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(texts[i], choices[i].at("text").as_string()) << more;
      EXPECT_EQ(reasons[i], choices[i].at("finish_reason").as_string());
    }
  }
}

TEST(Serve, ToolsAndSchemasShapeTheAnswer) {
  const ScratchFolder scratch;
  const ServeProcess server(
      {"--threads", "1", "--chat-template", scratch.Write("chat.jinja", kTemplate)});
  TestClient client(server.port());
  const TestResponse called = client.Ask(
      Post("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"Weather?"}],"max_tokens":80,"seed":1,
          "tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object",
          "properties":{"days":{"type":"integer","minimum":1,"maximum":9}},"required":["days"],
          "additionalProperties":false}}}],"tool_choice":"required"})"));
  ASSERT_EQ(called.status, 200) << called.body;
  const json::value choice = Body(called).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls") << called.body;
  const json::value function = choice.at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(function.at("name").as_string(), "weather");
  const int64_t days = json::parse(function.at("arguments").as_string()).at("days").as_int64();
  EXPECT_TRUE(days >= 1 && days <= 9);

  const TestResponse shaped =
      client.Ask(Post("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":60,"seed":2,
               "response_format":{"type":"json_schema","json_schema":{"name":"x","schema":
               {"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}})"));
  ASSERT_EQ(shaped.status, 200) << shaped.body;
  const std::string content(
      Body(shaped).at("choices").at(0).at("message").at("content").as_string());
  EXPECT_TRUE(json::parse(content).at("ok").is_bool()) << content;
}

TEST(Serve, WhatIsWrongIsToldAndTheServerGoesOn) {
  const ServeProcess server({"--threads", "1", "--api-key", "secret"});
  struct Bad {
    const char* path;
    const char* body;
    int status;
    const char* says;
  };
  for (const Bad& bad :
       {Bad{"/v1/completions", "{", 400, "no JSON"},
        Bad{"/v1/completions", R"({"prompt":""})", 400, "empty"},
        Bad{"/v1/completions", R"({"prompt":"x","model":"other"})", 404, "no model"},
        Bad{"/v1/completions", R"({"prompt":"x","temperature":-1})", 400, "temperature"},
        Bad{"/v1/completions", R"({"prompt":"x","n":2,"best_of":3,"stream":true})", 400, "best_of"},
        Bad{"/v1/completions", R"({"prompt":"x","guided_regex":"("})", 400, "regex"},
        Bad{"/v1/chat/completions", R"({"messages":[]})", 400, "messages"},
        Bad{"/v1/chat/completions",
            R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400, "image_url"},
        Bad{"/v1/embeddings", R"({"input":"x"})", 400, "embeddings"},
        Bad{"/v1/nothing", "{}", 404, ""}}) {
    const TestResponse response =
        TestClient(server.port()).Ask(WithKey(Post(bad.path, bad.body), "secret"));
    EXPECT_EQ(response.status, bad.status) << bad.body << response.body;
    EXPECT_NE(response.body.find(bad.says), std::string::npos) << response.body;
    EXPECT_TRUE(Body(response).at("error").as_object().contains("message"));
  }
  EXPECT_EQ(TestClient(server.port()).Ask(Get("/v1/models")).status, 401);
  EXPECT_EQ(TestClient(server.port()).Ask(WithKey(Get("/v1/models"), "wrong")).status, 401);
  const TestResponse models = TestClient(server.port()).Ask(WithKey(Get("/v1/models"), "secret"));
  EXPECT_EQ(Body(models).at("data").at(0).at("id").as_string(), "target-q8_0");
  EXPECT_EQ(TestClient(server.port()).Ask(Get("/ready")).status, 200);
}

TEST(Serve, AClientThatLeavesFreesItsMemory) {
  const ServeProcess server({"--threads", "1"});
  for (const char* stream : {"true", "false"}) {
    TestClient client(server.port());
    client.Write(Post("/v1/completions",
                      std::string(R"({"prompt":"The","max_tokens":1000,"ignore_eos":true,"n":4,)") +
                          R"("stream":)" + stream + "}"));
    for (int i = 0; i < 500 && Metric(server, "quire_kv_frames_leased") == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_GT(Metric(server, "quire_kv_frames_leased"), 0);
    client.Close();
    for (int i = 0; i < 500 && Metric(server, "quire_kv_frames_leased") != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(Metric(server, "quire_kv_frames_leased"), 0);
    EXPECT_EQ(Metric(server, "vllm:num_requests_running"), 0);
  }
}

TEST(Serve, SigtermLetsTheAnswerUnderWayFinish) {
  ServeProcess server({"--threads", "1"});
  TestClient client(server.port());
  client.Write(Post("/v1/completions",
                    R"({"prompt":"The","max_tokens":300,"ignore_eos":true,"stream":true})"));
  client.ReadThrough("data: ");
  EXPECT_EQ(server.Stop(SIGTERM), 0);
  EXPECT_NE(client.ReadToEnd().find("data: [DONE]"), std::string::npos);
}

// The engine may be in the middle of a step.
TEST(Serve, ASecondSignalCutsOffWhatIsUnderWay) {
  ServeProcess server({"--threads", "2"});
  TestClient client(server.port());
  client.Write(
      Post("/v1/completions",
           R"({"prompt":"The","max_tokens":1000,"ignore_eos":true,"n":32,"stream":true})"));
  client.ReadThrough("data: ");
  server.Signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server.Stop(SIGTERM), 0);
  EXPECT_EQ(client.ReadToEnd().find("[DONE]"), std::string::npos);
}

TEST(Serve, WhatIsUnderWayAtTheShutdownTimeoutIsTold) {
  ServeProcess server({"--threads", "1", "--shutdown-timeout", "0.2"});
  TestClient streaming(server.port());
  TestClient waiting(server.port());
  const std::string body = R"({"prompt":"The","max_tokens":1000,"ignore_eos":true,"n":16)";
  streaming.Write(Post("/v1/completions", body + R"(,"stream":true})"));
  waiting.Write(Post("/v1/completions", body + "}"));
  AwaitMetric(server, "vllm:num_requests_running", 2);
  streaming.ReadThrough("data: ");
  EXPECT_EQ(server.Stop(SIGTERM), 0);
  const std::string end = streaming.ReadToEnd();
  EXPECT_NE(end.find(R"("message":"the server is shutting down")"), std::string::npos);
  EXPECT_EQ(end.find("[DONE]"), std::string::npos);
  EXPECT_EQ(waiting.ReadResponse().status, 503);
}

TEST(Serve, AMessageIsContinuedWhereItsWordsEnd) {
  const ScratchFolder scratch;
  const ServeProcess server(
      {"--threads", "1", "--chat-template", scratch.Write("chat.jinja", kTemplate)});
  TestClient client(server.port());
  const auto prompt_of = [&](const std::string& words) {
    const json::object body{{"messages", {{{"role", "assistant"}, {"content", words}}}},
                            {"continue_final_message", true},
                            {"add_generation_prompt", false}};
    const TestResponse tokens = client.Ask(Post("/tokenize", json::serialize(body)));
    EXPECT_EQ(tokens.status, 200) << tokens.body;
    const json::object ids{{"tokens", Body(tokens).at("tokens")}};
    return Body(client.Ask(Post("/detokenize", json::serialize(ids)))).at("prompt").as_string();
  };
  // "im_end" stands in what the template writes behind the message, too.
  EXPECT_TRUE(prompt_of("im_end ").ends_with("assistant\nim_end"));
  EXPECT_TRUE(prompt_of("").ends_with("assistant\n"));
}

TEST(Serve, APromptThatIsFarTooLongIsRefusedBeforeItIsEncoded) {
  const ServeProcess server({"--threads", "1"});
  std::string text(2 << 20, 'x');
  const TestResponse refused =
      TestClient(server.port())
          .Ask(Post("/v1/completions", json::serialize(json::object{{"prompt", text}})));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("2097152 bytes"), std::string::npos) << refused.body;
  // Below that, what is truncated is welcome.
  text.resize(200'000);
  const json::object body{{"prompt", text}, {"truncate_prompt_tokens", 5}, {"max_tokens", 1}};
  const TestResponse served =
      TestClient(server.port()).Ask(Post("/v1/completions", json::serialize(body)));
  EXPECT_EQ(served.status, 200) << served.body;
  EXPECT_EQ(Body(served).at("usage").at("prompt_tokens").as_int64(), 5);
}

}  // namespace
}  // namespace quire::cli
