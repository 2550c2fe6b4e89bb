// Requests that are no requests: the server answers or closes, and goes on.
//
// QUIRE_TEST_RUNS=100000 sends as many as the project's bar asks for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "cli/run_binary_for_test.h"
#include "cli/serve_process_for_test.h"
#include "testing/random_runs.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using base::CounterRng;
using server::Get;
using server::Post;
using server::TestClient;
using server::TestResponse;

struct Template {
  const char* path;
  const char* body;
};

// Every endpoint that takes a body, with most of its fields.
constexpr Template kTemplates[] = {
    {"/v1/completions",
     R"({"model":"draft-q8_0","prompt":"x","max_tokens":2,"temperature":0.5,"top_p":0.9,"top_k":5,
         "n":1,"best_of":1,"stop":["a"],"logit_bias":{"5":1},"logprobs":1,"echo":true,"seed":1,
         "stream":false,"presence_penalty":0.1,"frequency_penalty":0.1,"min_tokens":1,
         "stop_token_ids":[4],"bad_words":["b"],"allowed_token_ids":[5,6,7],"prompt_logprobs":1,
         "truncate_prompt_tokens":4,"priority":1,"cache_salt":"s","guided_regex":"[ab]+"})"},
    {"/v1/completions",
     R"({"prompt":["x","y"],"max_tokens":1,"use_beam_search":true,"n":2,"length_penalty":1,
         "early_stopping":"never","ignore_eos":true})"},
    {"/v1/completions",
     R"({"prompt":[[5,6],[7]],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},
         "guided_grammar":"root ::= \"a\" | \"b\" root","return_token_ids":true})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_tokens":1,
         "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
         "properties":{"a":{"type":"integer","minimum":1,"maximum":3}},"required":["a"]}}}],
         "tool_choice":"required","logprobs":true,"top_logprobs":1})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"system","content":"s"},{"role":"assistant","content":"c","tool_calls":
         [{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
         {"role":"tool","tool_call_id":"1","content":"r"}],"max_completion_tokens":1,
         "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":
         {"type":"object","properties":{"a":{"anyOf":[{"type":"string","pattern":"[a-z]{1,3}"},
         {"type":"array","items":{"enum":[1,2]},"maxItems":2}]}},"$defs":{}}}},
         "chat_template":"{% for m in messages %}{{ m.content }}{% endfor %}",
         "chat_template_kwargs":{"a":1},"stream":true})"},
    {"/v1/responses",
     R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":
         "function_call","call_id":"c","name":"f","arguments":"{}"},{"type":
         "function_call_output","call_id":"c","output":"o"}],"instructions":"i",
         "max_output_tokens":1,"tools":[{"type":"function","name":"f","parameters":{}}],
         "tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"text"}}})"},
    {"/v1/messages",
     R"({"model":"draft-q8_0","max_tokens":1,"system":[{"type":"text","text":"s"}],"messages":[
         {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]},
         {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}],
         "tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"},
         "stop_sequences":["a"],"metadata":{"user_id":"u"}})"},
    {"/tokenize", R"({"prompt":"x","add_special_tokens":true})"},
    {"/detokenize", R"({"tokens":[5,6]})"},
    {"/v1/embeddings", R"({"input":"x"})"},
};

json::value RandomValue(CounterRng& rng) {
  switch (rng.NextBelow(14)) {
    case 0:
      return nullptr;
    case 1:
      return rng.NextBelow(2) == 0;
    case 2:
      return -7;
    case 3:
      return 1e308;
    case 4:
      return static_cast<int64_t>(rng.NextU64());
    case 5:
      return rng.NextU64();
    case 6:
      return "";
    case 7:
      return json::string(rng.NextBelow(3000), 'a');
    case 8:
      return "\xff\xfe\x80";
    case 9:
      return json::array{};
    case 10:
      return json::object{};
    case 11:
      return 0.5;
    case 12: {
      json::value deep = 1;
      for (uint64_t i = rng.NextBelow(30); i > 0; --i) deep = json::array{deep};
      return deep;
    }
    default:
      return json::array{1, "a", nullptr, json::object{{"type", "text"}}};
  }
}

// Puts something else in one place of `value`.
void Mutate(json::value& value, CounterRng& rng) {
  if (value.is_object() && !value.get_object().empty() && rng.NextBelow(6) != 0) {
    json::object& object = value.get_object();
    auto member = object.begin() + static_cast<ptrdiff_t>(rng.NextBelow(object.size()));
    if (rng.NextBelow(8) == 0) {
      object.erase(member);
    } else {
      Mutate(member->value(), rng);
    }
  } else if (value.is_array() && !value.get_array().empty() && rng.NextBelow(6) != 0) {
    json::array& array = value.get_array();
    Mutate(array[rng.NextBelow(array.size())], rng);
  } else {
    value = RandomValue(rng);
  }
}

// Bytes of a request, at one of three levels of nonsense.
std::string HostileRequest(CounterRng& rng) {
  const Template& from = kTemplates[rng.NextBelow(std::size(kTemplates))];
  json::value body = json::parse(from.body);
  for (uint64_t i = rng.NextBelow(4); i > 0; --i) Mutate(body, rng);
  std::string text = json::serialize(body);
  if (rng.NextBelow(3) == 0) {  // no JSON any more, perhaps
    for (uint64_t i = 1 + rng.NextBelow(4); i > 0 && !text.empty(); --i) {
      const size_t at = rng.NextBelow(text.size());
      if (rng.NextBelow(2) == 0) {
        text[at] = static_cast<char>(rng.NextBelow(256));
      } else {
        text.resize(at);
      }
    }
  }
  std::string request = Post(from.path, text);
  if (rng.NextBelow(8) == 0) {  // no HTTP any more, perhaps
    for (uint64_t i = 1 + rng.NextBelow(4); i > 0; --i) {
      request[rng.NextBelow(std::min<size_t>(request.size(), 80))] =
          static_cast<char>(rng.NextBelow(256));
    }
  }
  return request;
}

TEST(ServeHostile, WhateverIsSentTheServerAnswersOrClosesAndGoesOn) {
  const ScratchFolder scratch;
  const ServeProcess server({"-m", "models/draft/draft-q8_0.gguf", "--header-timeout", "0.3",
                             "--chat-template", scratch.Write("chat.jinja", kTemplate)});
  const uint64_t seed = quire::testing::TestSeed(11);
  const int64_t runs = quire::testing::TestRuns(3000);
  const std::string good =
      Post("/v1/completions", R"({"prompt":"The old man","max_tokens":8,"seed":1})");
  const std::string expected =
      json::serialize(Body(TestClient(server.port()).Ask(good)).at("choices"));
  std::optional<TestClient> client;
  int64_t answered = 0, closed = 0, left = 0;
  for (int64_t i = 0; i < runs; ++i) {
    CounterRng rng(seed, i, 0);
    const std::string request = HostileRequest(rng);
    if (!client) client.emplace(server.port());
    if (rng.NextBelow(20) == 0) {  // only a part, and gone
      client->Write(std::string_view(request).substr(0, rng.NextBelow(request.size())));
      rng.NextBelow(2) == 0 ? client->Reset() : client->Close();
      client.reset();
      ++left;
      continue;
    }
    const TestResponse response = client->Ask(request);
    if (response.status == 0) {
      ++closed;
    } else {
      ++answered;
      ASSERT_GE(response.status, 100);
      ASSERT_LT(response.status, 600);
    }
    // Where the request ended is not known after some of them.
    if (response.status == 0 || response.Has("Connection: close") || rng.NextBelow(50) == 0) {
      client.reset();
    }
    if (i % 1000 == 0) {
      const TestResponse again = TestClient(server.port()).Ask(good);
      ASSERT_EQ(again.status, 200) << request;
      ASSERT_EQ(json::serialize(Body(again).at("choices")), expected) << request;
    }
  }
  client.reset();
  std::printf("%lld answered, %lld closed, %lld left\n", static_cast<long long>(answered),
              static_cast<long long>(closed), static_cast<long long>(left));
  EXPECT_GT(answered, runs / 2);
  EXPECT_EQ(json::serialize(Body(TestClient(server.port()).Ask(good)).at("choices")), expected);
  for (int i = 0; i < 200 && Metric(server, "quire_kv_frames_leased") != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(Metric(server, "quire_kv_frames_leased"), 0);
}

}  // namespace
}  // namespace quire::cli
