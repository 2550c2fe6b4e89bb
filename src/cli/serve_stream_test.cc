// A streamed answer is the whole answer, in pieces: text, ids, log probabilities, reasons, usage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "cli/run_binary_for_test.h"
#include "cli/serve_process_for_test.h"
#include "testing/random_runs.h"
#include "text/utf8.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using server::Post;
using server::TestClient;
using server::TestResponse;

// What a choice says, put together.
struct ChoiceText {
  std::string text;
  json::array ids;
  json::array prompt_ids;  // completions
  json::array logprobs;    // of tokens, however the API writes them
  json::array tokens;      // completions: their texts
  json::value finish_reason;
  json::value stop_reason;
};

void AddAll(json::array& to, const json::value& from) {
  for (const json::value& item : from.as_array()) to.push_back(item);
}

void AddChoice(const json::object& choice, ChoiceText& to) {
  for (const char* holder : {"message", "delta"}) {
    if (!choice.contains(holder)) continue;
    const json::value* content = choice.at(holder).as_object().if_contains("content");
    if (content != nullptr && content->is_string()) to.text += content->as_string();
  }
  if (choice.contains("text")) to.text += choice.at("text").as_string();
  // Whatever came with this piece of text: as many ids as log probabilities.
  size_t entries = 0;
  if (const json::value& logprobs = choice.at("logprobs"); !logprobs.is_null()) {
    const json::object& lists = logprobs.as_object();
    const json::value& list =
        lists.contains("content") ? lists.at("content") : lists.at("token_logprobs");
    entries = list.as_array().size();
    AddAll(to.logprobs, list);
    if (lists.contains("tokens")) AddAll(to.tokens, lists.at("tokens"));
  }
  if (choice.contains("token_ids")) {
    const json::value& ids = choice.at("token_ids");
    // With echo the first piece has the prompt's log probabilities too.
    if (!choice.at("logprobs").is_null() && !choice.contains("prompt_token_ids")) {
      EXPECT_EQ(ids.as_array().size(), entries);
    }
    AddAll(to.ids, ids);
    if (choice.contains("prompt_token_ids")) AddAll(to.prompt_ids, choice.at("prompt_token_ids"));
  }
  if (!choice.at("finish_reason").is_null()) {
    to.finish_reason = choice.at("finish_reason");
    to.stop_reason = choice.at("stop_reason");
  }
}

void AddChoices(const json::object& body, std::vector<ChoiceText>& choices) {
  for (const json::value& choice : body.at("choices").as_array()) {
    const auto index = static_cast<size_t>(choice.at("index").as_int64());
    if (choices.size() <= index) choices.resize(index + 1);
    AddChoice(choice.as_object(), choices[index]);
  }
}

// Bodies that make tokens end within characters, and stops within and across tokens.
json::object RandomBody(base::CounterRng& rng) {
  constexpr const char* kPrompts[] = {"The old man said: 😀👍🏽 ",
                                      "Once upon a time",
                                      "昔々ある所に",
                                      "كان يا ما كان",
                                      "Cafe\u0301 nai\u0308ve",
                                      "\"",
                                      "e\u0301\u0302"};
  constexpr const char* kAnswers[] = {"😀👍🏽🏳️‍🌈 done",
                                      "漢字かな交じり文",
                                      "مرحبا بالعالم",
                                      "e\u0301\u0302\u0303n",
                                      "plain",
                                      "a😀b😀c"};
  constexpr const char* kStops[] = {"the",      "e",    " and",   "😀",  "ir",
                                    "\xc3\xa9", "字か", "\u0302", "\n", "said the"};
  const auto pick = [&](const auto& list) { return list[rng.NextBelow(std::size(list))]; };
  json::object body{{"max_tokens", 1 + rng.NextBelow(32)}, {"seed", rng.NextBelow(1 << 20)}};
  if (rng.NextBelow(2) == 0) {
    body["messages"] = {{{"role", "user"}, {"content", pick(kPrompts)}}};
    if (rng.NextBelow(2) == 0) body["logprobs"] = true, body["top_logprobs"] = 2;
  } else {
    body["prompt"] = pick(kPrompts);
    if (rng.NextBelow(2) == 0) body["logprobs"] = 2;
    if (rng.NextBelow(4) == 0) body["echo"] = true;
  }
  if (rng.NextBelow(4) == 0) body["truncate_prompt_tokens"] = 1 + rng.NextBelow(6);
  body["temperature"] = static_cast<double>(rng.NextBelow(5)) * 0.7;  // from greedy to noise
  if (rng.NextBelow(3) == 0) body["n"] = 3;
  if (rng.NextBelow(2) == 0) body["return_token_ids"] = true;
  if (rng.NextBelow(3) == 0) {
    json::array answers;
    for (const char* answer : kAnswers) answers.emplace_back(answer);
    body["guided_choice"] = answers;
  }
  if (rng.NextBelow(2) == 0) {
    body["stop"] = {pick(kStops), pick(kStops)};
    if (rng.NextBelow(2) == 0) body["include_stop_str_in_output"] = true;
  }
  if (rng.NextBelow(4) == 0) body["min_tokens"] = 1;
  if (rng.NextBelow(4) == 0) body["skip_special_tokens"] = false;
  return body;
}

TEST(ServeStream, TwoHundredStreamedAnswersEqualTheWholeOnes) {
  const ScratchFolder scratch;
  const ServeProcess server({"--threads", "1", "-m", "models/draft/draft-q8_0.gguf",
                             "--chat-template", scratch.Write("chat.jinja", kTemplate)});
  const uint64_t seed = quire::testing::TestSeed(7);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  TestClient client(server.port());
  for (int i = 0; i < 200; ++i) {
    base::CounterRng rng(seed, i, 0);
    json::object body = RandomBody(rng);
    const char* path = body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
    SCOPED_TRACE(json::serialize(body));
    const TestResponse whole = client.Ask(Post(path, json::serialize(body)));
    ASSERT_EQ(whole.status, 200) << whole.body;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const TestResponse stream = client.Ask(Post(path, json::serialize(body)));
    ASSERT_EQ(stream.status, 200) << stream.body;
    ASSERT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
    EXPECT_TRUE(text::IsValidUtf8(stream.body));

    std::vector<ChoiceText> expected, streamed;
    AddChoices(Body(whole), expected);
    json::object usage;
    for (const json::object& event : Events(stream.body)) {
      AddChoices(event, streamed);
      if (event.at("usage").is_object()) usage = event.at("usage").as_object();
    }
    ASSERT_EQ(streamed.size(), expected.size());
    for (size_t c = 0; c < expected.size(); ++c) {
      EXPECT_EQ(streamed[c].text, expected[c].text);
      EXPECT_EQ(streamed[c].ids, expected[c].ids);
      EXPECT_EQ(streamed[c].prompt_ids, expected[c].prompt_ids);
      EXPECT_EQ(streamed[c].logprobs, expected[c].logprobs);
      EXPECT_EQ(streamed[c].tokens, expected[c].tokens);
      EXPECT_EQ(streamed[c].finish_reason, expected[c].finish_reason);
      EXPECT_EQ(streamed[c].stop_reason, expected[c].stop_reason);
    }
    EXPECT_EQ(usage.at("completion_tokens"), Body(whole).at("usage").at("completion_tokens"));
  }
}

}  // namespace
}  // namespace quire::cli
