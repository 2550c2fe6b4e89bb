#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/flag_parser.h"
#include "cli/progress_bar.h"
#include "cli/run_binary_for_test.h"
#include "cli/terminal.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Parsed {
  std::string prompt;
  std::string model = "m";
  float penalty = 0.0f;
  bool caching = true;
  bool raw = false;
  std::vector<std::string> stop;
};

// Parses `args`; `error` gets the message of a failure.
Parsed Parse(std::vector<std::string> args, std::string* error = nullptr) {
  Parsed parsed;
  base::FlagSet flags;
  flags.Positional("PROMPT", &parsed.prompt, "The text.");
  flags.Add("model", &parsed.model, "Model.").Short('m');
  flags.Add("presence-penalty", &parsed.penalty, "Penalty.").Range(-2, 2);
  flags.Add("caching", &parsed.caching, "Cache.");
  flags.Add("raw", &parsed.raw, "Raw.");
  flags.Add("stop", &parsed.stop, "Stop.");
  Result<ParsedAs> result = ParseFlags(flags, args);
  if (error != nullptr) {
    *error = result.ok() ? "" : result.error().message;
  } else {
    EXPECT_TRUE(result.ok()) << result.error().message;
  }
  return parsed;
}

TEST(FlagParser, ReadsEveryWayToWriteAFlag) {
  Parsed p = Parse({"-m", "x.gguf", "--presence-penalty", "-1.5", "--no-caching", "--raw", "--stop",
                    "a", "hello world", "--stop=b"});
  EXPECT_EQ(p.model, "x.gguf");
  EXPECT_EQ(p.penalty, -1.5f);
  EXPECT_FALSE(p.caching);
  EXPECT_TRUE(p.raw);
  EXPECT_THAT(p.stop, ElementsAre("a", "b"));
  EXPECT_EQ(p.prompt, "hello world");
}

TEST(FlagParser, LeavesTextAsItIs) {
  for (const char* text : {"", "[a,b]", "{}", "a=b", "'quoted' \"twice\"", "x\ny", "-", "über"}) {
    EXPECT_EQ(Parse({text}).prompt, text);
    EXPECT_EQ(Parse({"--model", text}).model, text);
    EXPECT_THAT(Parse({"--stop", text}).stop, ElementsAre(text));
  }
  EXPECT_EQ(Parse({"--", "--raw"}).prompt, "--raw");
  EXPECT_FALSE(Parse({"--", "--raw"}).raw);
}

TEST(FlagParser, ARepeatedArgumentTakesAllThatHaveNoName) {
  std::vector<std::string> ids;
  std::string model;
  base::FlagSet flags;
  flags.Positional("ID", &ids, "Ids.");
  flags.Add("model", &model, "Model.").Short('m');
  std::vector<std::string> args = {"1", "2", "-m", "x", "3"};
  ASSERT_TRUE(ParseFlags(flags, args).ok());
  EXPECT_THAT(ids, ElementsAre("1", "2", "3"));
  EXPECT_EQ(model, "x");
}

TEST(FlagParser, SaysWhatIsWrong) {
  auto error = [](std::vector<std::string> args) {
    std::string message;
    Parse(std::move(args), &message);
    return message;
  };
  EXPECT_EQ(error({"--modle", "x"}), "there is no flag --modle; did you mean --model?");
  EXPECT_THAT(error({"--qqqqqq"}), HasSubstr("--help lists the flags"));
  EXPECT_EQ(error({"--model"}), "--model needs a value.");
  EXPECT_EQ(error({"--presence-penalty", "3"}),
            "--presence-penalty is 3; it must be from -2 to 2.");
  EXPECT_THAT(error({"one", "two"}), HasSubstr("'two' is one argument too many"));
}

TEST(ProgressBar, ShowsCountsRateAndTimeLeft) {
  ProgressBarOptions options{.label = "batch", .total = 200, .unit = "requests"};
  EXPECT_EQ(ProgressBar::Line(options, 50, 1000, 10.0),
            "batch [######..................] 50/200 requests  100.0 tokens/s  0:30 left");
  options.total = 0;
  EXPECT_EQ(ProgressBar::Line(options, 50, 1000, 10.0), "batch 50 requests  100.0 tokens/s");
}

TEST(Terminal, APipeGetsNoColours) {
  EXPECT_EQ(Terminal::Plain().Out(Style::kRed, "text"), "text");
}

TEST(PrettyJson, IsTheSameValueIndented) {
  boost::json::value value = {{"a", {1, 2}}, {"b", {{"c", "x\"y"}}}, {"d", boost::json::object()}};
  std::string text = PrettyJson(value);
  EXPECT_EQ(text, "{\n  \"a\": [1,2],\n  \"b\": {\n    \"c\": \"x\\\"y\"\n  },\n  \"d\": {}\n}\n");
  EXPECT_EQ(boost::json::parse(text), value);
}

TEST(Binary, PrintsVersionAndHelp) {
  BinaryResult version = RunBinary("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, ::testing::MatchesRegex("quire [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  for (const char* help : {"--help", "help", "-h"}) {
    BinaryResult result = RunBinary(help);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("Usage: quire COMMAND"));
    EXPECT_THAT(result.out, HasSubstr("info"));
  }
  EXPECT_THAT(RunBinary("info --help").out, HasSubstr("Examples:"));
  EXPECT_EQ(RunBinary("help info").out, RunBinary("info --help").out);
  EXPECT_THAT(RunBinary("help --markdown").out, HasSubstr("## quire info"));
}

TEST(Binary, EveryCommandHasHelpWithAnExampleAndJson) {
  std::string overview = RunBinary("--help").out;
  std::istringstream lines(overview);
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) continue;
    std::string name = line.substr(2, line.find("  ", 2) - 2);
    BinaryResult help = RunBinary(name + " --help");
    EXPECT_EQ(help.exit_code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("Examples:")) << name;
    EXPECT_THAT(help.out, HasSubstr("--json")) << name;
    ++commands;
  }
  EXPECT_GE(commands, 1);
}

TEST(Binary, UsageErrorsExitWithTwoAndSayWhatWasMeant) {
  BinaryResult none = RunBinary("");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("Usage:"));
  EXPECT_EQ(none.out, "");
  BinaryResult command = RunBinary("imfo");
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_EQ(command.err, "quire: there is no command 'imfo'; did you mean info?\n");
  BinaryResult flag = RunBinary("info --bandwith");
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_EQ(
      flag.err,
      "quire: there is no flag --bandwith; did you mean --bandwidth? Try `quire info --help`.\n");
  EXPECT_EQ(RunBinary("info --threads many").exit_code, 2);
  EXPECT_EQ(RunBinary("help nothing").exit_code, 2);
}

TEST(Binary, CommandsOfTwoWordsAreListedByTheirFirst) {
  for (const char* help : {"eval --help", "help eval"}) {
    const BinaryResult result = RunBinary(help);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("eval perplexity"));
    EXPECT_THAT(result.out, Not(HasSubstr("tokenize")));
  }
  EXPECT_EQ(RunBinary("help eval recall").out, RunBinary("eval recall --help").out);
  const BinaryResult alone = RunBinary("eval");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_EQ(alone.err, "quire: quire eval needs one more word; quire eval --help lists them.\n");
  EXPECT_EQ(RunBinary("eval recal").err,
            "quire: there is no command 'eval recal'; did you mean eval recall?\n");
}

TEST(Binary, AFullDiskIsAnError) {
  BinaryResult result;
  int status = std::system("'" QUIRE_BINARY "' --help >/dev/full 2>/dev/null");
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  EXPECT_EQ(result.exit_code, 7);
}

TEST(Binary, InfoNamesTheMachineAndItsKernels) {
  BinaryResult text = RunBinary("info --bandwidth-memory 16MiB");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("GB/s"));
  EXPECT_THAT(text.out, Not(HasSubstr("\033")));
  BinaryResult result = RunBinary("info --json --bandwidth-memory 16MiB --threads 1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  boost::json::value info = boost::json::parse(result.out);
  EXPECT_GT(info.at("memory_read_bytes_per_second").as_double(), 1e8);
  EXPECT_EQ(info.at("threads").as_int64(), 1);
  EXPECT_EQ(info.at("kernels_available").at(0).at("name"), "scalar");
  EXPECT_THAT(RunBinary("info --json --no-bandwidth").out, Not(HasSubstr("per_second")));
  EXPECT_EQ(RunBinary("info --bandwidth-memory 1PiB").exit_code, 2);
  EXPECT_EQ(RunBinary("info --bandwidth-memory 1000TiB").exit_code, 6);
}

TEST(Binary, DumpConfigPrintsEveryFlagsValue) {
  BinaryResult result = RunBinary("info --threads 3 --dump-config");
  ASSERT_EQ(result.exit_code, 0);
  boost::json::value config = boost::json::parse(result.out);
  EXPECT_EQ(config.at("threads"), "3");
  EXPECT_EQ(config.at("bandwidth"), "true");
}

}  // namespace
}  // namespace quire::cli
