// What the APIs take beyond the plain completion, and the limits that an operator sets.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"
#include "cli/serve_process_for_test.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using server::Get;
using server::Post;
using server::TestClient;
using server::TestResponse;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<ScratchFolder>();
    server_ = std::make_unique<ServeProcess>(
        std::vector<std::string>{"--threads", "1", "-m", "models/draft/draft-q8_0.gguf",
                                 "--chat-template", scratch_->Write("chat.jinja", kTemplate)});
  }
  static void TearDownTestSuite() {
    server_.reset();
    scratch_.reset();
  }

  static TestResponse Ask(std::string_view path, std::string_view body) {
    return TestClient(server_->port()).Ask(Post(path, body));
  }
  static json::object Answer(std::string_view path, std::string_view body) {
    const TestResponse response = Ask(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? Body(response) : json::object();
  }
  static std::string TextOf(const json::object& completion) {
    return std::string(completion.at("choices").at(0).at("text").as_string());
  }

  static std::unique_ptr<ScratchFolder> scratch_;
  static std::unique_ptr<ServeProcess> server_;
};
std::unique_ptr<ScratchFolder> ServeApi::scratch_;
std::unique_ptr<ServeProcess> ServeApi::server_;

TEST_F(ServeApi, APolicyKeepsSomeTokensAndSaysHowMany) {
  const std::string start =
      R"({"prompt":"Once there was a king who had three sons and a garden with a wall around it",)"
      R"("temperature":0,"max_tokens":60,"ignore_eos":true)";
  const json::object plain = Answer("/v1/completions", start + "}");
  EXPECT_FALSE(plain.at("usage").as_object().contains("kv_tokens_kept"));
  const json::object h2o =
      Answer("/v1/completions", start + R"(,"kv_policy":{"policy":"h2o","budget":32,"recent":8}})");
  EXPECT_EQ(h2o.at("usage").at("kv_tokens_kept"), 33);
  EXPECT_EQ(h2o.at("usage").at("completion_tokens"), 60);
  EXPECT_NE(TextOf(h2o), TextOf(plain));
  // Beyond the context of 1,024 tokens.
  const json::object streaming =
      Answer("/v1/completions",
             R"({"prompt":"Once","max_tokens":1500,"ignore_eos":true,)"
             R"("kv_policy":{"policy":"streaming","budget":64,"sinks":4,"pin_prefix_tokens":1}})");
  EXPECT_EQ(streaming.at("usage").at("completion_tokens"), 1500);
  // Nobody asked for more than the context.
  const json::object unlimited =
      Answer("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hello"}],)"
                                     R"("ignore_eos":true,)"
                                     R"("kv_policy":{"policy":"streaming","budget":64}})");
  EXPECT_LE(unlimited.at("usage").at("total_tokens").as_int64(), 1024);
  const TestResponse chat =
      Ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hello there"}],)"
                                  R"("max_tokens":40,"ignore_eos":true,"stream":true,)"
                                  R"("stream_options":{"include_usage":true},)"
                                  R"("kv_policy":{"policy":"snapkv","budget":0.5}})");
  EXPECT_THAT(chat.body, HasSubstr("\"kv_tokens_kept\""));
}

TEST_F(ServeApi, APolicyThatCannotWorkIsTheClientsError) {
  const auto message = [](std::string_view policy) {
    const TestResponse response =
        Ask("/v1/completions", fmt::format(R"({{"prompt":"x","kv_policy":{}}})", policy));
    EXPECT_EQ(response.status, 400) << policy;
    return response.body;
  };
  EXPECT_THAT(message(R"("h2o")"), HasSubstr("must be an object"));
  EXPECT_THAT(message(R"({"policy":"lru"})"), HasSubstr("streaming, h2o, snapkv and tova"));
  EXPECT_THAT(message(R"({"budget":10})"), HasSubstr("'policy' is missing"));
  EXPECT_THAT(message(R"({"policy":"h2o","budget":10.5})"), HasSubstr("whole number"));
  EXPECT_THAT(message(R"({"policy":"h2o","budget":4})"), HasSubstr("budget of 4 tokens"));
  EXPECT_THAT(message(R"({"policy":"h2o","budget":100000})"), HasSubstr("max_model_len"));
  EXPECT_THAT(message(R"({"policy":"h2o","bugdet":9})"), HasSubstr("no field 'bugdet'"));
}

TEST_F(ServeApi, BadWordsDoNotComeAndAllowedTokensAlone) {
  const std::string start = R"({"prompt":"The old man","temperature":0,"max_tokens":24)";
  const std::string plain = TextOf(Answer("/v1/completions", start + "}"));
  ASSERT_THAT(plain, HasSubstr(" a"));
  const std::string word = plain.substr(1, plain.find(' ', 1) - 1);
  const std::string without = TextOf(Answer(
      "/v1/completions", start + R"(,"bad_words":)" + json::serialize(json::array{word}) + "}"));
  EXPECT_THAT(without + " ", Not(HasSubstr(" " + word + " ")));
  const json::object allowed = Answer(
      "/v1/completions", start + R"(,"allowed_token_ids":[300,301],"return_token_ids":true})");
  for (const json::value& token : allowed.at("choices").at(0).at("token_ids").as_array()) {
    EXPECT_TRUE(token == 300 || token == 301);
  }
  EXPECT_EQ(Ask("/v1/completions", start + R"(,"allowed_token_ids":[]})").status, 400);
  const TestResponse nothing =
      Ask("/v1/completions", start + R"(,"allowed_token_ids":[300],"guided_regex":"[0-9]+"})");
  EXPECT_EQ(nothing.status, 422) << nothing.body;
  EXPECT_THAT(nothing.body, HasSubstr("no token may come next"));
  // Its siblings end with it, and none of them counts as its client's doing.
  EXPECT_EQ(Ask("/v1/completions",
                start + R"(,"n":2,"best_of":2,"allowed_token_ids":[300],"guided_regex":"[0-9]+"})")
                .status,
            422);
  EXPECT_THAT(TestClient(server_->port()).Ask(Get("/metrics")).body,
              ContainsRegex(R"(vllm:request_success_total\{[^}]*"error"[^}]*\} 2)"));
  EXPECT_EQ(Ask("/v1/completions", start + R"(,"allowed_token_ids":[1000000]})").status, 400);
}

// The same lists whether the prompt was cached or not, and whether the answer is streamed.
TEST_F(ServeApi, EchoedLogprobsCoverThePromptOnAColdAndAWarmCache) {
  const std::string body =
      R"({"prompt":"There was once a poor man who had a good horse and a long road before him.",)"
      R"("echo":true,"logprobs":2,"max_tokens":3,"temperature":0)";
  const json::value cold = Answer("/v1/completions", body + "}").at("choices").at(0);
  const json::value warm = Answer("/v1/completions", body + "}").at("choices").at(0);
  EXPECT_EQ(cold, warm);
  const json::object& lists = cold.at("logprobs").as_object();
  const size_t tokens = lists.at("tokens").as_array().size();
  EXPECT_GT(tokens, 15u);
  for (const json::key_value_pair& list : lists) EXPECT_EQ(list.value().as_array().size(), tokens);
  EXPECT_TRUE(lists.at("token_logprobs").at(0).is_null());
  for (size_t i = 1; i < tokens; ++i) EXPECT_LE(lists.at("token_logprobs").at(i).as_double(), 0);
  // Each token's text stands at its offset.
  const std::string text(cold.at("text").as_string());
  for (size_t i = 2; i < tokens; ++i) {
    const std::string token(lists.at("tokens").at(i).as_string());
    const auto offset = static_cast<size_t>(lists.at("text_offset").at(i).as_int64());
    EXPECT_EQ(text.substr(offset, token.size()), token);
  }

  const TestResponse stream = Ask("/v1/completions", body + R"(,"stream":true})");
  std::string streamed_text;
  json::object streamed;
  for (const json::object& event : Events(stream.body)) {
    const json::value& choice = event.at("choices").at(0);
    streamed_text += choice.at("text").as_string();
    if (choice.at("logprobs").is_null()) continue;
    for (const json::key_value_pair& list : choice.at("logprobs").as_object()) {
      json::value& target = streamed[list.key()];
      if (target.is_null()) target = json::array();
      for (const json::value& item : list.value().as_array()) target.as_array().push_back(item);
    }
  }
  EXPECT_EQ(streamed_text, text);
  EXPECT_EQ(streamed, lists);
}

TEST_F(ServeApi, APromptIsScoredWithoutAToken) {
  const json::value choice =
      Answer("/v1/completions",
             R"({"prompt":"The old man","max_tokens":0,"prompt_logprobs":1,"echo":true})")
          .at("choices")
          .at(0);
  EXPECT_EQ(choice.at("text"), "The old man");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("prompt_logprobs").as_array().size(), 4u);
}

TEST_F(ServeApi, ResponsesAnswerWholeAsTheyStream) {
  for (const char* more :
       {R"("input":"Tell me of the sea.","instructions":"Be short.")",
        R"("input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
            {"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},
            {"type":"function_call_output","call_id":"c1","output":"blue"},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"So"}]},
            {"role":"user","content":"And?"}])",
        R"("input":"Hi","text":{"format":{"type":"json_schema","name":"x","schema":
            {"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}})",
        R"("input":"Hi","tools":[{"type":"function","name":"look","parameters":{"type":"object",
            "properties":{"at":{"enum":["sea","sky"]}},"required":["at"],
            "additionalProperties":false}}],"tool_choice":"required")"}) {
    const std::string body = std::string(R"({"seed":4,"max_output_tokens":40,)") + more;
    json::object whole = Answer("/v1/responses", body + "}");
    const TestResponse stream = Ask("/v1/responses", body + R"(,"stream":true})");
    const std::vector<json::object> events = Events(stream.body);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.front().at("type"), "response.created");
    json::object last = events.back().at("response").as_object();
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].at("sequence_number"), static_cast<int64_t>(i));
    }
    std::string text;
    for (const json::object& event : events) {
      if (event.contains("delta")) text += event.at("delta").as_string();
    }
    const json::object& item = last.at("output").at(0).as_object();
    if (item.at("type") == "message") {
      EXPECT_EQ(item.at("content").at(0).at("text").as_string(), text);
    } else {
      EXPECT_EQ(item.at("arguments").as_string(), text);
      EXPECT_EQ(item.at("name"), "look");
    }
    // Ids are new for every answer; everything else is the same.
    EXPECT_EQ(whole.at("status"), last.at("status"));
    const json::object& other = whole.at("output").at(0).as_object();
    for (const char* key : {"content", "arguments", "name", "status"}) {
      const json::value* streamed = item.if_contains(key);
      const json::value* expected = other.if_contains(key);
      ASSERT_EQ(streamed == nullptr, expected == nullptr) << key;
      EXPECT_TRUE(streamed == nullptr || *streamed == *expected) << key;
    }
    EXPECT_GT(whole.at("usage").at("output_tokens").as_int64(), 0);
  }
}

TEST_F(ServeApi, ResponsesThatNeedWhatIsNotHereAreRefused) {
  for (const auto& [body, says] :
       {std::pair{R"({"input":"x","previous_response_id":"resp_1"})", "stores nothing"},
        std::pair{R"({"input":"x","background":true})", "background"},
        std::pair{R"({"input":"x","tools":[{"type":"web_search"}]})", "web_search"},
        std::pair{R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
                  "input_image"},
        std::pair{R"({"input":[]})", "input"}, std::pair{R"({"input":7})", "input"},
        std::pair{R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
        std::pair{R"({"input":"x","text":"plain"})", "text"}, std::pair{R"([])", "JSON object"}}) {
    const TestResponse response = Ask("/v1/responses", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(response.body, HasSubstr(says));
  }
}

TEST_F(ServeApi, MessagesAnswerInAnthropicsWords) {
  const std::string body =
      R"({"model":"draft-q8_0","max_tokens":80,"temperature":0,"messages":[{"role":"user",
          "content":"Hi"}],
          "system":"Be kind.","tools":[{"name":"look","input_schema":{"type":"object",
          "properties":{"at":{"enum":["sea","sky"]}},"required":["at"],
          "additionalProperties":false}}])";
  const json::object called =
      Answer("/v1/messages", body + R"(,"tool_choice":{"type":"tool","name":"look"}})");
  EXPECT_EQ(called.at("stop_reason"), "tool_use");
  EXPECT_EQ(called.at("content").at(0).at("type"), "tool_use");
  EXPECT_TRUE(called.at("content").at(0).at("input").at("at").is_string());

  const TestResponse stream =
      Ask("/v1/messages", body + R"(,"tool_choice":{"type":"none"},"stream":true})");
  EXPECT_THAT(stream.body, HasSubstr("event: message_start\n"));
  EXPECT_THAT(stream.body, HasSubstr("event: message_stop\n"));
  std::string text;
  for (const json::object& event : Events(stream.body)) {
    if (event.at("type") == "content_block_delta") text += event.at("delta").at("text").as_string();
  }
  EXPECT_FALSE(text.empty());

  const json::object count =
      Answer("/v1/messages/count_tokens",
             R"({"model":"draft-q8_0","messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_GT(count.at("input_tokens").as_int64(), 3);
  const TestResponse wrong = Ask("/v1/messages", R"({"model":"draft-q8_0","messages":[]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(Body(wrong).at("type"), "error");
}

TEST_F(ServeApi, HalvesOfCharactersAreReplaced) {
  for (const auto& [sent, meant] :
       {std::pair{"a\\ud83d", "a\\ufffd"}, std::pair{"\\ude00b", "\\ufffdb"},
        std::pair{"\\ud83d\\ud83d\\ude00", "\\ufffd\\ud83d\\ude00"},
        std::pair{"\\\\ud83d", "\\\\ud83d"}}) {
    const auto ids = [&](const std::string& text) {
      return Answer("/tokenize", R"({"prompt":")" + text + R"("})").at("tokens");
    };
    EXPECT_EQ(ids(sent), ids(meant)) << sent;
  }
}

TEST_F(ServeApi, AnswersCarryTheirRequestsId) {
  const std::string body = R"({"prompt":"x","max_tokens":1,"request_id":"mine")";
  EXPECT_TRUE(Ask("/v1/completions", body + "}").Has("x-request-id: mine\r\n"));
  EXPECT_TRUE(Ask("/v1/completions", body + R"(,"stream":true})").Has("x-request-id: mine\r\n"));
}

TEST(ServeLimits, ATenantSeesItsOwnRequestsAlone) {
  const ServeProcess server({"--threads", "1", "-m", "models/draft/draft-q8_0.gguf", "--api-key",
                             "one", "--api-key", "two"});
  const auto with_key = [](std::string request, const std::string& key) {
    return request.insert(request.find("\r\n") + 2, "Authorization: Bearer " + key + "\r\n");
  };
  TestClient running(server.port());
  running.Write(with_key(
      Post("/v1/completions", R"({"prompt":"x","max_tokens":900,"ignore_eos":true})"), "one"));
  AwaitMetric(server, "vllm:num_requests_running", 1);
  const auto seen = [&](const std::string& key) {
    const TestResponse response = TestClient(server.port()).Ask(with_key(Get("/v1/requests"), key));
    return Body(response).at("data").as_array().size();
  };
  EXPECT_EQ(seen("two"), 0u);
  EXPECT_EQ(seen("one"), 1u);
}

TEST(ServeLimits, WhatGoesBeyondIsRefusedWithTheLimit) {
  const ServeProcess server({"--threads", "1", "-m", "models/draft/draft-q8_0.gguf",
                             "--max-prompt-len", "8", "--max-n", "2", "--max-queued-requests", "2",
                             "--max-num-seqs", "1", "--max-body-size", "4KiB", "--max-bodies-size",
                             "6KiB", "--max-streaming-tokens", "1200"});
  const auto ask = [&](const std::string& body) {
    return TestClient(server.port()).Ask(Post("/v1/completions", body));
  };
  EXPECT_THAT(ask(R"({"prompt":[5,5,5,5,5,5,5,5,5],"max_tokens":1})").body,
              HasSubstr("9 tokens, but this server takes at most 8"));
  EXPECT_THAT(ask(R"({"prompt":"x","n":3})").body, HasSubstr("at most 2"));
  EXPECT_EQ(ask(std::string(5000, ' ')).status, 413);
  EXPECT_THAT(ask(R"({"prompt":"x","max_tokens":2147483647,"ignore_eos":true,)"
                  R"("kv_policy":{"policy":"streaming","budget":32}})")
                  .body,
              HasSubstr(R"("completion_tokens":1200)"));

  // One runs, two wait, one is too many.
  const std::string slow =
      Post("/v1/completions", R"({"prompt":"x","max_tokens":900,"ignore_eos":true})");
  TestClient running(server.port());
  running.Write(slow);
  AwaitMetric(server, "vllm:num_requests_running", 1);
  TestClient second(server.port()), third(server.port());
  second.Write(slow);
  third.Write(slow);
  AwaitMetric(server, "vllm:num_requests_waiting", 2);
  const TestResponse refused = ask(R"({"prompt":"x","max_tokens":1})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.Has("Retry-After:"));
}

TEST(ServeLimits, BodiesOfAllRequestsTogetherAreBounded) {
  const ServeProcess server({"--threads", "1", "-m", "models/draft/draft-q8_0.gguf",
                             "--max-body-size", "4KiB", "--max-bodies-size", "6KiB"});
  // Both arrive only in part, so both are held.
  const std::string part =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Length: 4000\r\n\r\n" +
      std::string(3900, ' ');
  TestClient first(server.port());
  first.Write(part);
  TestClient second(server.port());
  second.Write(part);
  EXPECT_EQ(second.ReadResponse().status, 503);
  first.Close();
  TestResponse after;
  for (int i = 0; i < 100 && after.status != 400; ++i) {
    after = TestClient(server.port()).Ask(Post("/v1/completions", std::string(3900, ' ')));
  }
  EXPECT_EQ(after.status, 400);  // heard again: no JSON
}

TEST(ServeLimits, ALoopbackServerAnswersForItsOwnNamesAlone) {
  const ServeProcess server(
      {"--threads", "1", "-m", "models/draft/draft-q8_0.gguf", "--allowed-host", "proxy.example"});
  for (const auto& [host, status] :
       {std::pair{"localhost", 200}, std::pair{"127.0.0.1:80", 200}, std::pair{"[::1]:8", 200},
        std::pair{"proxy.example:1", 200}, std::pair{"evil.example", 403},
        std::pair{"localhost.evil.example", 403}}) {
    const std::string request = std::string("GET /health HTTP/1.1\r\nHost: ") + host + "\r\n\r\n";
    EXPECT_EQ(TestClient(server.port()).Ask(request).status, status) << host;
  }
}

}  // namespace
}  // namespace quire::cli
