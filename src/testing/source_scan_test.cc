#include "testing/source_scan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;

std::string Code(std::string text) {
  return ParseSource("src/a/a.cc", std::move(text)).code;
}

TEST(SourceScan, CommentsAndLiteralsBecomeBlanksOfTheSameLength) {
  EXPECT_EQ(Code("a; // b\nc /* d\n e */ f"), "a;     \nc     \n      f");
  EXPECT_EQ(Code("s = \"a\\\"b\" + 'c';"), "s = \"    \" + ' ';");
  EXPECT_EQ(Code("// a \\\n b\nc"), "      \n  \nc");
}

TEST(SourceScan, RawStringsEndAtTheirDelimiter) {
  EXPECT_EQ(Code("R\"x(a)\" // ( )x\" + b"), " \"             \" + b");
}

TEST(SourceScan, DigitSeparatorsOpenNoLiteral) {
  EXPECT_EQ(Code("1'000'000 + f('x')"), "1'000'000 + f(' ')");
}

TEST(SourceScan, IncludesInCommentsDoNotCount) {
  const SourceFile file = ParseSource("src/a/a.cc",
                                      "#include \"base/check.h\"\n// #include \"b.h\"\n"
                                      "/*\n#include \"c.h\"\n*/\n#  include <vector>\n");
  EXPECT_THAT(Includes(file), ElementsAre(Field(&Include::target, "base/check.h"),
                                          Field(&Include::target, "vector")));
  EXPECT_EQ(Includes(file)[1].line, 6);
}

TEST(SourceScan, FolderIsThePartAfterSrc) {
  EXPECT_EQ(ParseSource("src/kv/block_pool.h", "").folder(), "kv");
  EXPECT_EQ(ParseSource("docs/a.h", "").folder(), "");
}

std::vector<std::string> Names(const std::string& text) {
  const SourceFile file = ParseSource("src/a/a.cc", text);
  const Outline outline = OutlineOf(file);
  EXPECT_TRUE(outline.balanced) << text;
  std::vector<std::string> names;
  for (const Function& function : outline.functions) names.push_back(function.name);
  return names;
}

TEST(SourceOutline, FindsFunctionsInNamespacesAndClasses) {
  EXPECT_THAT(Names("namespace a::b {\nint F() { if (x) { g(1); } return 0; }\n"
                    "class C final : public D<int> {\n public:\n  explicit C(int a);\n"
                    "  int size() const { return 1; }\n private:\n  int x_ = f(1);\n};\n}"),
              ElementsAre("F", "C", "size"));
}

TEST(SourceOutline, SeesThroughConstructorInitializers) {
  EXPECT_THAT(
      Names("struct S {\n S(int a) : a_{a}, b_(a), c_{} { f(a); }\n int G() { return 1; } };"),
      ElementsAre("S", "G"));
}

TEST(SourceOutline, SeesThroughTemplatesRequirementsAndAttributes) {
  EXPECT_THAT(Names("template <typename F, typename = std::enable_if_t<(1 > 0)>>\n"
                    "  requires(std::is_same_v<F, int> && B<F>)\nvoid Call(F&& f) { f(); }\n"
                    "[[nodiscard]] inline int N() { return 1; }\n"
                    "__attribute__((target(\"avx2\"))) float Dot(const float* a) { return *a; }\n"
                    "template <> int Get<int>(int x) { return x; }"),
              ElementsAre("Call", "N", "Dot", ">"));
}

TEST(SourceOutline, SeesOperatorsAndFunctionPointers) {
  EXPECT_THAT(Names("struct S {\n bool operator==(const S& o) const { return true; }\n"
                    " int operator()(int a) const { return a; }\n explicit operator bool() const;\n"
                    " S& operator=(S&& o) noexcept { return *this; }\n void (*dot)(int, int); };"),
              ElementsAre("==", "operator()", "bool", "=", "dot"));
}

TEST(SourceOutline, VariablesAndMacroCallsAreNoFunctions) {
  EXPECT_THAT(Names("constexpr int kA[] = {F(1), F(2)};\nenum class E { kA, kB };\nint x{3};\n"
                    "auto f = [](int a) { return a; };\nBENCHMARK(Dot)->Arg(1);\n"
                    "using Fn = int (*)(int);\nstd::function<void(int)> g;\n"),
              ElementsAre());
}

TEST(SourceOutline, MacroLinesDoNotBelongToTheNextFunction) {
  const SourceFile file =
      ParseSource("src/a/a.cc", "QUIRE_TARGET_BEGIN_AVX2\n\n\nvoid F() {\n}\nQUIRE_TARGET_END\n");
  const Outline outline = OutlineOf(file);
  ASSERT_THAT(outline.functions, SizeIs(1));
  EXPECT_EQ(outline.functions[0].lines(), 2);
}

TEST(SourceOutline, PreprocessorLinesYieldNoTokens) {
  EXPECT_THAT(Names("#define OPEN { \\\n  ( [\n#if defined(X)\nvoid F() {}\n#endif\n"),
              ElementsAre("F"));
}

TEST(SourceOutline, ParametersExcludeDefaultsAndVoid) {
  const SourceFile file =
      ParseSource("src/a/a.h", "void F(const bool a = G(b, c), M<K, V> m);\nint G(void);");
  const Outline outline = OutlineOf(file);
  ASSERT_THAT(outline.functions, SizeIs(2));
  ASSERT_THAT(outline.functions[0].parameters, SizeIs(2));
  EXPECT_THAT(outline.functions[0].parameters[0].tokens, ElementsAre("const", "bool", "a"));
  EXPECT_THAT(outline.functions[1].parameters, SizeIs(0));
}

TEST(SourceOutline, UnmatchedBracketsAreReported) {
  for (const char* text : {"void F() {", "}", "int a = (1];"}) {
    const SourceFile file = ParseSource("src/a/a.cc", text);
    EXPECT_FALSE(OutlineOf(file).balanced) << text;
  }
}

}  // namespace
}  // namespace quire::testing
