// The rules of style over the sources as they are, and each rule over a sample that breaks it.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/source_rules.h"
#include "testing/source_scan.h"

namespace quire::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What a rule may not hold against a file. Few, each with its reason; one that is no longer needed
// fails the test.
struct Allowance {
  std::string_view rule;
  std::string_view path;
  std::string_view containing;  // part of the finding
  std::string_view reason;
};
constexpr std::array<Allowance, 2> kAllowances = {{
    {"Exceptions", "src/text/jinja_budget.h", "`throw`",
     "the template engine's recursion unwinds by one exception that never leaves its Template"},
    {"Exceptions", "src/tensor/buffer.cc", "`throw`",
     "memory that runs out is told as by any container, and ends in one sentence (main.cc)"},
}};

bool Allows(const Allowance& allowance, std::string_view rule, std::string_view finding) {
  return allowance.rule == rule && finding.starts_with(std::string(allowance.path) + ":") &&
         finding.find(allowance.containing) != std::string_view::npos;
}

class Rule : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Rule, HoldsInEverySource) {
  const std::vector<SourceFile> files = SourcesUnder(".");
  ASSERT_GT(files.size(), 20u) << "the tests run in the repository's root";
  Findings findings;
  for (const SourceFile& file : files) {
    for (std::string& finding : FindingsOf(GetParam(), file)) {
      const bool allowed = std::any_of(kAllowances.begin(), kAllowances.end(), [&](const auto& a) {
        return Allows(a, GetParam(), finding);
      });
      if (!allowed) findings.push_back(std::move(finding));
    }
  }
  EXPECT_THAT(findings, IsEmpty()) << fmt::format("{}", fmt::join(findings, "\n"));
}

std::vector<std::string_view> RuleNames() {
  std::vector<std::string_view> names;
  for (const SourceRule& rule : SourceRules()) names.push_back(rule.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Sources, Rule, ::testing::ValuesIn(RuleNames()),
                         [](const auto& rule) { return std::string(rule.param); });

TEST(Sources, EveryAllowanceIsStillNeeded) {
  const std::vector<SourceFile> files = SourcesUnder(".");
  for (const Allowance& allowance : kAllowances) {
    bool used = false;
    for (const SourceFile& file : files) {
      if (file.path != allowance.path) continue;
      for (const std::string& finding : FindingsOf(allowance.rule, file)) {
        used = used || Allows(allowance, allowance.rule, finding);
      }
    }
    EXPECT_TRUE(used) << allowance.path << " no longer breaks " << allowance.rule;
  }
}

SourceFile TextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {path, std::string(std::istreambuf_iterator<char>(in), {}), ""};
}

// Paths like src/kv/kv_cache.h or clients/package-lock.json in a text.
std::vector<std::string> PathsNamedIn(const std::string& text) {
  static const std::regex kPath(
      R"((^|[\s`(])((src|tools|docs|models|cmake|deploy|clients)/[A-Za-z0-9_./-]*\w))");
  std::vector<std::string> paths;
  for (std::sregex_iterator it(text.begin(), text.end(), kPath), end; it != end; ++it) {
    paths.push_back((*it)[2]);
  }
  return paths;
}

TEST(Sources, PathsNamedInTheDocumentsExist) {
  for (const char* document :
       {"README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/NUMERICS.md",
        "docs/PERFORMANCE.md", "docs/SERVING.md", "deploy/README.md"}) {
    const std::string text = TextFile(document).text;
    ASSERT_FALSE(text.empty()) << document;
    for (const std::string& path : PathsNamedIn(text)) {
      EXPECT_TRUE(std::filesystem::exists(path)) << document << " names " << path;
    }
  }
}

TEST(Sources, NoOtherTextNamesAPathOfOneMachine) {
  std::vector<std::string> paths = {"CMakeLists.txt", "CMakePresets.json", "Makefile",
                                    ".ci/run",        ".clang-tidy",       "deploy/Dockerfile"};
  for (const char* folder : {"clients", "cmake", "deploy", "docs", "tools", "models"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      static const std::set<std::string> kTexts = {".md",  ".txt", ".sh",      ".cmake", ".py",
                                                   ".mjs", ".yml", ".service", ".jinja", ".json"};
      const bool is_text = kTexts.contains(entry.path().extension().string()) &&
                           entry.path().string().find("node_modules") == std::string::npos;
      if (is_text) paths.push_back(entry.path().string());
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(".")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path().string());
  }
  for (const std::string& path : paths) {
    const Findings findings = MachinePaths(TextFile(path));
    EXPECT_THAT(findings, IsEmpty()) << fmt::format("{}", fmt::join(findings, "\n"));
  }
}

// From here on: each rule over a sample, so that a rule that finds nothing is known to work.

Findings In(std::string_view rule, std::string path, std::string text) {
  return FindingsOf(rule, ParseSource(std::move(path), std::move(text)));
}

std::string Repeated(std::string_view line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

TEST(RuleSelfTest, FileLinesCountsEveryLine) {
  EXPECT_THAT(In("FileLines", "src/a/a.cc", Repeated("\n", 600)), IsEmpty());
  EXPECT_THAT(In("FileLines", "src/a/a.cc", Repeated("\n", 601)), SizeIs(1));
}

TEST(RuleSelfTest, FunctionLinesCountsFromDeclarationToBrace) {
  const auto function = [](int inner) {
    return "namespace n {\nclass C {\n int F(int a) {\n" + Repeated("  a += 1;\n", inner) +
           "  return a;\n}\n};\n}\n";
  };
  EXPECT_THAT(In("FunctionLines", "src/a/a.cc", function(67)), IsEmpty());
  EXPECT_THAT(In("FunctionLines", "src/a/a.cc", function(68)),
              ElementsAre(HasSubstr("src/a/a.cc:3: F has 71 lines")));
  EXPECT_THAT(In("FunctionLines", "src/a/a_test.cc",
                 "TEST(Suite, Name) {\n" + Repeated("f();\n", 70) + "}\n"),
              SizeIs(1));
}

TEST(RuleSelfTest, ParameterCountSeesDeclarationsMembersAndPointers) {
  EXPECT_THAT(In("ParameterCount", "src/a/a.h", "void F(int a, int b, int c, int d, int e);"),
              IsEmpty());
  for (const char* six : {"void F(int a, int b, int c, int d, int e, int f);",
                          "struct S { S(int a, int b, int c, int d, int e, int f) : a_{a} {} };",
                          "struct S { void (*f)(int a, int b, int c, int d, int e, int f); };",
                          "template <typename T = int> void F(T, T, T, T, T, T) {}"}) {
    EXPECT_THAT(In("ParameterCount", "src/a/a.h", six), SizeIs(1)) << six;
  }
  EXPECT_THAT(In("ParameterCount", "src/a/a.h",
                 "void F(std::map<int, std::pair<int, int>> m, std::function<void(int, int)> f,\n"
                 "       int a = G(1, 2, 3), std::array<int, 3> b = {1, 2, 3});"),
              IsEmpty());
}

TEST(RuleSelfTest, BooleanModesAreFoundInHeadersOnly) {
  EXPECT_THAT(In("BooleanModes", "src/a/a.h", "void F(int a, bool fast = true);"), SizeIs(1));
  EXPECT_THAT(In("BooleanModes", "src/a/a.cc", "void F(int a, bool fast = true);"), IsEmpty());
  EXPECT_THAT(In("BooleanModes", "src/a/a.h",
                 "void F(bool* found, std::vector<bool> v); bool G(bool value);"),
              IsEmpty());
}

TEST(RuleSelfTest, ManualMemoryIsFoundInCodeAndNotInProse) {
  EXPECT_THAT(In("ManualMemory", "src/a/a.cc",
                 "int* p = new int;\nvoid F() { delete p; free(p); std::malloc(4); }"),
              SizeIs(4));
  EXPECT_THAT(In("ManualMemory", "src/a/a.cc",
                 "// a new block\nC(const C&) = delete;\npool.free(3); const char* s = \"new\";"),
              IsEmpty());
  EXPECT_THAT(In("ManualMemory", "src/tensor/buffer.cc", "int* p = new int;"), IsEmpty());
}

TEST(RuleSelfTest, ExceptionsAndSentinelsAreFound) {
  EXPECT_THAT(In("Exceptions", "src/a/a.cc", "void F() { throw 1; }  // throw"), SizeIs(1));
  EXPECT_THAT(In("SentinelReturns", "src/a/a.cc", "int F() { return -1; }"), SizeIs(1));
  EXPECT_THAT(In("SentinelReturns", "src/a/a.cc", "int F() { return a - 1; }  // return -1;"),
              IsEmpty());
}

TEST(RuleSelfTest, LineWidthCountsCharactersNotBytes) {
  EXPECT_THAT(In("LineWidth", "src/a/a.cc", Repeated("é", 100)), IsEmpty());
  EXPECT_THAT(In("LineWidth", "src/a/a.cc", Repeated("x", 101)), SizeIs(1));
}

TEST(RuleSelfTest, HeadersOpenWithACommentAndAreIncludedOnce) {
  EXPECT_THAT(In("HeaderOpening", "src/a/a.h", "// What it owns.\n#pragma once\n"), IsEmpty());
  EXPECT_THAT(In("HeaderOpening", "src/a/a.h", "int x;  // #pragma once\n"), SizeIs(2));
  EXPECT_THAT(In("UsingNamespaceInHeader", "src/a/a.h", "using namespace std;"), SizeIs(1));
}

TEST(RuleSelfTest, UnfinishedWorkAndMachinePathsAreFoundInComments) {
  EXPECT_THAT(In("UnfinishedWork", "src/a/a.cc", std::string("// TO") + "DO: later\n"), SizeIs(1));
  EXPECT_THAT(In("MachinePaths", "src/a/a.cc", std::string("// see /ho") + "me/me/x\n"), SizeIs(1));
}

TEST(RuleSelfTest, PathsInDocumentsAreSeen) {
  EXPECT_THAT(PathsNamedIn("see `src/kv/kv_cache.h`, (docs/A.md) or tools/fuzz.sh. Not x/src/b."),
              ElementsAre("src/kv/kv_cache.h", "docs/A.md", "tools/fuzz.sh"));
}

TEST(RuleSelfTest, FilesThatCannotBeFollowedAreReported) {
  EXPECT_THAT(In("Followable", "src/a/a.cc", "void F() { ( }"), SizeIs(1));
}

}  // namespace
}  // namespace quire::testing
