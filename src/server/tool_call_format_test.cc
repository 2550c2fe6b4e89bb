#include "server/tool_call_format.h"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "testing/shared_data.h"

namespace quire::server {
namespace {

using enum ToolCallFormat;

std::string Template(const std::string& folder, const std::string& name) {
  std::ifstream in(folder + "/" + name + ".jinja", std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(ToolCallFormat, PublishedTemplatesTellTheirFormat) {
  QUIRE_SHARED_DATA_OR_SKIP(folder, "templates");
  const std::pair<const char*, std::optional<ToolCallFormat>> expected[] = {
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", kHermes},
      {"Qwen-Qwen2.5-7B-Instruct", kHermes},
      {"Qwen-Qwen3-0.6B", kHermes},
      {"ibm-granite-granite-3.3-2B-Instruct", kGranite},
      {"meta-llama-Llama-3.1-8B-Instruct", kLlama3},
      {"mistralai-Mistral-Nemo-Instruct-2407", kMistral},
      {"google-gemma-2-2b-it", std::nullopt},
      {"microsoft-Phi-3.5-mini-instruct", std::nullopt},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", std::nullopt},
  };
  for (const auto& [name, format] : expected) {
    const std::string source = Template(folder, name);
    ASSERT_FALSE(source.empty()) << name;
    EXPECT_EQ(DetectToolCallFormat(source), format) << name;
  }
}

TEST(ToolCallFormat, TemplatesWithToolsButNoKnownFormatGetTheCommonOne) {
  EXPECT_EQ(DetectToolCallFormat("{% for tool in tools %}{{ tool | tojson }}{% endfor %}"),
            kHermes);
  EXPECT_EQ(DetectToolCallFormat("{% if tools %}<|start_of_role|>"), kGranite);
  EXPECT_EQ(DetectToolCallFormat("{{ message.tool_calls }} toolset my_tools"), std::nullopt);
  EXPECT_EQ(DetectToolCallFormat("<|start_header_id|>"), std::nullopt);
  EXPECT_EQ(DetectToolCallFormat(""), std::nullopt);
}

TEST(ToolCallFormat, ToolNamesAreShortAndOfHarmlessBytes) {
  for (const char* name : {"f", "get_weather", "a-b.c:d/e", "9"}) EXPECT_TRUE(IsToolName(name));
  for (const char* name : {"", "two words", "é", "a\"b", "a\n", "{"})
    EXPECT_FALSE(IsToolName(name));
  EXPECT_TRUE(IsToolName(std::string(kToolNameBytesMax, 'a')));
  EXPECT_FALSE(IsToolName(std::string(kToolNameBytesMax + 1, 'a')));
}

}  // namespace
}  // namespace quire::server
