// A model's template over conversations.
#include "text/chat_template.h"

#include <gtest/gtest.h>

namespace quire::text {
namespace {

constexpr const char* kChatMl =
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}";

boost::json::array Conversation() {
  return boost::json::parse(R"([{"role": "system", "content": "Be brief."},
                                {"role": "user", "content": "Hi {{ 1 }}"}])")
      .as_array();
}

TEST(ChatTemplate, RendersTheConversationWithItsTokens) {
  const auto chat = ChatTemplate::Create(kChatMl, "<s>", "</s>");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(*chat->Render(Conversation(), {{"add_generation_prompt", true}}),
            "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ 1 }}<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(*chat->Render(Conversation(), {}),
            "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ 1 }}<|im_end|>\n");
}

TEST(ChatTemplate, ExtraArgumentsReachTheTemplateAndWin) {
  const auto chat = ChatTemplate::Create(
      "{{ bos_token }}|{{ eos_token }}|{{ tools|tojson }}|{{ enable_thinking is defined }}", "<s>",
      "</s>");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(*chat->Render({}, {{"tools", {{{"name", "f"}}}}, {"bos_token", "<b>"}}),
            R"(<b>|</s>|[{"name": "f"}]|False)");
}

TEST(ChatTemplate, WhatTheTemplateRefusesIsAnErrorWithItsWords) {
  const auto chat = ChatTemplate::Create(
      "{% if messages[0].role == 'system' %}\n{{ raise_exception('System role not supported') }}\n"
      "{% endif %}",
      "", "");
  ASSERT_TRUE(chat.ok());
  const Result<std::string> text = chat->Render(Conversation(), {});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "template line 2: System role not supported");
  EXPECT_EQ(text.error().kind, ErrorKind::kInvalid);
}

TEST(ChatTemplate, AMalformedTemplateIsRefusedWhenItIsMade) {
  const auto chat = ChatTemplate::Create("{% for m in messages %}", "", "");
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().message,
            "template line 1: expected {% endfor %}, found the end of the template");
}

}  // namespace
}  // namespace quire::text
