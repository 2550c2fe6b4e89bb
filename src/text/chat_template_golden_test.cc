// Published chat templates against the texts the reference engine renders from them.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "testing/shared_data.h"
#include "text/chat_template.h"

namespace quire::text {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(ChatTemplateGolden, EveryPublishedTemplateGivesTheReferenceText) {
  QUIRE_SHARED_DATA_OR_SKIP(folder, "templates");
  const boost::json::value golden = boost::json::parse(ReadFile(folder + "/golden.json"));
  const jinja::RenderOptions options{.limits = {}, .now = jinja::Date(2026, 7, 26)};
  int cases = 0;
  for (const auto& [name, list] : golden.as_object()) {
    auto chat =
        ChatTemplate::Create(ReadFile(folder + "/" + std::string(name) + ".jinja"), "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.error().message;
    for (const boost::json::value& test_case : list.as_array()) {
      SCOPED_TRACE(std::string(name) + " " + std::string(test_case.at("case").as_string()));
      boost::json::object extra = test_case.at("args").as_object();
      const boost::json::array messages = extra["messages"].as_array();
      extra.erase("messages");
      const Result<std::string> text = chat->Render(messages, extra, options);
      if (test_case.as_object().contains("error")) {
        ASSERT_FALSE(text.ok());
        EXPECT_NE(text.error().message.find(test_case.at("error").as_string()), std::string::npos)
            << text.error().message;
      } else {
        ASSERT_TRUE(text.ok()) << text.error().message;
        EXPECT_EQ(*text, std::string(test_case.at("text").as_string()));
      }
      ++cases;
    }
  }
  EXPECT_GE(cases, 80);
}

}  // namespace
}  // namespace quire::text
