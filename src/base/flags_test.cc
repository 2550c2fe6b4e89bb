#include "base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Options {
  int threads = 4;
  float temperature = 1.0f;
  std::string dtype = "f16";
  bool caching = true;
  bool verbose = false;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  ByteSize memory{1 << 20};
  std::string model;

  void Declare(FlagSet& flags) {
    flags.Positional("MODEL", &model, "The model.").Required();
    flags.Add("threads", &threads, "Threads.").Short('t').Range(1, 64);
    flags.Add("caching", &caching, "Reuse prefixes.");
    flags.Add("verbose", &verbose, "Say more.");
    flags.Group("Sampling");
    flags.Add("temperature", &temperature, "Randomness.").AtLeast(0);
    flags.Add("seed", &seed, "Seed.");
    flags.Add("stop", &stop, "Ends the text.").Metavar("TEXT");
    flags.Add("dtype", &dtype, "Precision.").OneOf({"f32", "f16", "bf16"});
    flags.Add("memory", &memory, "Arena.").AtLeast(0);
    flags.Example("quire run x.gguf", "Runs it");
  }
};

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() { options.Declare(flags); }
  std::string Fail(const std::string& name, const std::string& text) {
    Status status = flags.Find(name)->Set(text);
    if (status.ok()) return "accepted";
    EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
    return status.error().message;
  }
  bool Set(const std::string& name, const std::string& text) {
    return flags.Find(name)->Set(text).ok();
  }

  Options options;
  FlagSet flags;
};

TEST_F(FlagsTest, ValuesReachTheirTargets) {
  EXPECT_TRUE(Set("threads", "8"));
  EXPECT_TRUE(Set("temperature", "0.25"));
  EXPECT_TRUE(Set("caching", "false"));
  EXPECT_TRUE(Set("seed", "18446744073709551615"));
  EXPECT_TRUE(Set("stop", "a"));
  EXPECT_TRUE(Set("stop", "b,c"));
  EXPECT_TRUE(Set("memory", "1.5GiB"));
  EXPECT_TRUE(Set("dtype", "bf16"));
  EXPECT_EQ(options.threads, 8);
  EXPECT_EQ(options.temperature, 0.25f);
  EXPECT_FALSE(options.caching);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_THAT(options.stop, ElementsAre("a", "b,c"));
  EXPECT_EQ(options.memory.bytes, 3LL << 29);
  EXPECT_EQ(options.dtype, "bf16");
}

TEST_F(FlagsTest, ErrorsAreOneSentenceAndLeaveTheTargetAlone) {
  EXPECT_EQ(Fail("threads", "65"), "--threads is 65; it must be from 1 to 64.");
  EXPECT_EQ(Fail("threads", "4x"), "--threads is '4x', which is not a whole number (1 to 64).");
  EXPECT_EQ(Fail("threads", "99999999999"),
            "--threads is '99999999999', which is not a whole number (1 to 64).");
  EXPECT_EQ(Fail("temperature", "-1"), "--temperature is -1; it must be at least 0.");
  EXPECT_THAT(Fail("temperature", "nan"), HasSubstr("not a number"));
  EXPECT_THAT(Fail("temperature", ""), HasSubstr("not a number"));
  EXPECT_EQ(Fail("dtype", "fp16"),
            "--dtype is 'fp16'; it must be f32, f16 or bf16 (did you mean f16?).");
  EXPECT_THAT(Fail("memory", "12 apples"), HasSubstr("a size such as 512MiB"));
  EXPECT_THAT(Fail("memory", "-5"), HasSubstr("a size such as"));
  EXPECT_THAT(Fail("seed", "-3"), HasSubstr("not negative"));
  EXPECT_EQ(options.threads, 4);
  EXPECT_EQ(options.dtype, "f16");
}

TEST_F(FlagsTest, ARequiredFlagIsNamedWhenItIsMissing) {
  EXPECT_EQ(flags.CheckRequired().error().message, "MODEL is missing: The model.");
  EXPECT_TRUE(Set("MODEL", "x.gguf"));
  EXPECT_TRUE(flags.CheckRequired().ok());
}

TEST_F(FlagsTest, HelpTellsEveryDeclaration) {
  std::string help = flags.HelpText("quire run", "Runs a model.");
  for (const char* part :
       {"Runs a model.", "Usage: quire run [options] MODEL", "-t, --threads VALUE",
        "--[no-]caching", "--verbose", "1 to 64; default: 4", "Sampling:", "--stop TEXT",
        "may be repeated", "f32, f16 or bf16; default: f16", "default: 1 MiB", "# Runs it",
        "(required)"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  EXPECT_THAT(flags.HelpMarkdown("quire run", "Runs."), HasSubstr("| `--seed VALUE` | Seed. |"));
}

TEST(ByteSize, IsReadAndWrittenInTheUnitsPeopleUse) {
  auto parse = [](std::string_view text) {
    ByteSize size;
    return flags_internal::ParseValue(text, size) ? std::optional(size.bytes) : std::nullopt;
  };
  EXPECT_EQ(parse("4096"), 4096);
  EXPECT_EQ(parse("4GB"), 4000000000);
  EXPECT_EQ(parse("4G"), 4LL << 30);
  EXPECT_EQ(parse("2 MiB"), 2 << 20);
  EXPECT_EQ(parse("GiB"), std::nullopt);
  EXPECT_EQ(parse("1e30GiB"), std::nullopt);
  EXPECT_EQ(FormatBytes(1), "1 byte");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(3LL << 30), "3 GiB");
}

TEST(ClosestName, FindsWhatWasMeant) {
  std::vector<std::string> known = {"temperature", "top-k", "top-p", "model", "run"};
  EXPECT_EQ(ClosestName("temprature", known), "temperature");
  EXPECT_EQ(ClosestName("modle", known), "model");
  EXPECT_EQ(ClosestName("urn", known), "run");
  EXPECT_EQ(ClosestName("zzzzz", known), std::nullopt);
  EXPECT_EQ(ClosestName("x", known), std::nullopt);
}

}  // namespace
}  // namespace quire::base
