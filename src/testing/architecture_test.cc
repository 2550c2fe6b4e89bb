// The arrows between the folders of src/. CMakeLists.txt declares them (quire_module ... DEPS);
// this test reads them there, so that what is built and what may be included are one truth.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/source_scan.h"

namespace quire::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What each folder depends on: folders by name, libraries by target ("fmt::fmt").
using Arrows = std::map<std::string, std::set<std::string>>;

Arrows ParseArrows(const std::string& cmake) {
  Arrows arrows;
  std::istringstream lines(cmake);
  std::string code;
  for (std::string line; std::getline(lines, line);) code += line.substr(0, line.find('#')) + "\n";
  const std::string call = "quire_module(";
  for (size_t at = code.find(call); at != std::string::npos; at = code.find(call, at + 1)) {
    const size_t begin = at + call.size();
    std::istringstream words(code.substr(begin, code.find(')', begin) - begin));
    std::string name;
    words >> name;
    std::set<std::string>& deps = arrows[name];
    for (std::string word; words >> word;) {
      if (word != "DEPS") deps.insert(word);
    }
  }
  return arrows;
}

Arrows RepositoryArrows() {
  std::ifstream in("CMakeLists.txt");
  return ParseArrows(std::string(std::istreambuf_iterator<char>(in), {}));
}

// Everything that `folder` reaches along the arrows, itself included.
std::set<std::string> Reachable(const Arrows& arrows, const std::string& folder) {
  std::set<std::string> seen;
  std::vector<std::string> open = {folder};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (!seen.insert(name).second) continue;
    const auto found = arrows.find(name);
    if (found != arrows.end()) open.insert(open.end(), found->second.begin(), found->second.end());
  }
  return seen;
}

struct Library {
  std::string_view header;  // first part of the include
  std::string_view target;
};
constexpr Library kLibraries[] = {
    {"fmt/", "fmt::fmt"},
    {"spdlog/", "spdlog::spdlog"},
    {"boost/", "Boost::json"},
    {"openssl/", "OpenSSL::Crypto"},
    {"unicode/", "ICU::uc"},
    {"pcre2.h", "PkgConfig::PCRE2"},
    {"xxhash.h", "PkgConfig::XXHASH"},
    {"CLI/", "CLI11::CLI11"},
};
constexpr std::string_view kTestLibraries[] = {"gtest/", "gmock/", "benchmark/"};

// Helpers that tests of one folder share are headers with _test in their name.
bool IsTestSource(const std::string& path) {
  const bool is_helper = path.ends_with(".h") && path.find("_test") != std::string::npos;
  return is_helper || path.ends_with("_test.cc") || path.ends_with("_bench.cc") ||
         path.ends_with("_fuzz.cc");
}

// Why `file` may not include `target`, or nullopt if it may.
std::optional<std::string> Objection(const Arrows& arrows, const SourceFile& file,
                                     const std::string& target) {
  const std::set<std::string> reachable = Reachable(arrows, file.folder());
  for (const Library& library : kLibraries) {
    if (!target.starts_with(library.header)) continue;
    if (reachable.contains(std::string(library.target))) return std::nullopt;
    return fmt::format("{} is not among the libraries of {}", library.target, file.folder());
  }
  for (std::string_view library : kTestLibraries) {
    if (!target.starts_with(library)) continue;
    if (IsTestSource(file.path) || file.folder() == "testing") return std::nullopt;
    return fmt::format("{} belongs in tests", library);
  }
  const size_t slash = target.find('/');
  if (slash == std::string::npos) return std::nullopt;  // the standard library
  const std::string folder = target.substr(0, slash);
  if (!arrows.contains(folder)) return std::nullopt;  // the system: <sys/mman.h>
  if (reachable.contains(folder)) return std::nullopt;
  // Helpers of tests are header-only and may be used by the tests of any folder.
  if (folder == "testing" && IsTestSource(file.path)) return std::nullopt;
  return fmt::format("no arrow leads from {} to {}", file.folder(), folder);
}

TEST(Architecture, IncludesFollowTheArrows) {
  const Arrows arrows = RepositoryArrows();
  const std::vector<SourceFile> files = SourcesUnder(".");
  ASSERT_GT(files.size(), 20u) << "the tests run in the repository's root";
  for (const SourceFile& file : files) {
    for (const Include& include : Includes(file)) {
      const auto objection = Objection(arrows, file, include.target);
      EXPECT_FALSE(objection) << file.path << ":" << include.line << ": " << *objection;
    }
  }
}

TEST(Architecture, EveryFolderIsATarget) {
  const Arrows arrows = RepositoryArrows();
  for (const auto& entry : std::filesystem::directory_iterator("src")) {
    EXPECT_TRUE(arrows.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(Architecture, ArrowsFormNoCircle) {
  const Arrows arrows = RepositoryArrows();
  for (const auto& [name, deps] : arrows) {
    for (const std::string& dep : deps) {
      EXPECT_FALSE(Reachable(arrows, dep).contains(name)) << name << " and " << dep;
    }
  }
}

// The promises that the shape rests on; an arrow added in CMakeLists.txt must not undo them.
struct Promise {
  std::string folder;
  std::set<std::string> never_reaches;
};

TEST(Architecture, PartsThatMustNotKnowEachOtherDoNot) {
  const Arrows arrows = RepositoryArrows();
  const std::set<std::string> bytes = {"tensor", "kernels", "kvstore", "model"};
  const Promise promises[] = {
      {"base", {"tensor", "kernels", "kv", "text"}},
      {"text", {"tensor", "kernels", "model", "kv", "sched"}},
      {"kv", bytes},
      {"sched", bytes},
      {"kernels", {"kv", "text", "model"}},
      {"model", {"sched", "text"}},
      {"engine", {"cli", "server"}},
  };
  for (const Promise& promise : promises) {
    ASSERT_TRUE(arrows.contains(promise.folder)) << promise.folder;
    const std::set<std::string> reachable = Reachable(arrows, promise.folder);
    for (const std::string& forbidden : promise.never_reaches) {
      EXPECT_FALSE(reachable.contains(forbidden)) << promise.folder << " reaches " << forbidden;
    }
  }
}

TEST(Architecture, ControlPlaneAndSchedulerUseNoThreads) {
  const std::set<std::string> threads = {
      "thread", "mutex", "atomic", "condition_variable", "shared_mutex", "base/thread_team.h"};
  for (const SourceFile& file : SourcesUnder(".")) {
    if (file.folder() != "kv" && file.folder() != "sched") continue;
    for (const Include& include : Includes(file)) {
      EXPECT_FALSE(threads.contains(include.target)) << file.path << ":" << include.line;
    }
  }
}

// From here on: the test over samples, so that it is known to fail when it should.

TEST(ArchitectureSelfTest, ArrowsAreReadFromCMake) {
  const Arrows arrows = ParseArrows(
      "quire_module(base DEPS fmt::fmt)\n# quire_module(no DEPS base)\n"
      "quire_module(kv DEPS base\n             OpenSSL::Crypto)\n");
  ASSERT_THAT(arrows, SizeIs(2));
  EXPECT_THAT(arrows.at("kv"), ElementsAre("OpenSSL::Crypto", "base"));
  EXPECT_THAT(Reachable(arrows, "kv"), Contains("fmt::fmt"));
}

TEST(ArchitectureSelfTest, IncludesAgainstTheArrowsAreRefused) {
  const Arrows arrows = {{"base", {"fmt::fmt"}}, {"kv", {"base"}}, {"testing", {"kv"}}};
  const SourceFile base = ParseSource("src/base/a.h", "");
  const SourceFile kv = ParseSource("src/kv/a.cc", "");
  const SourceFile kv_test = ParseSource("src/kv/a_test.cc", "");
  EXPECT_EQ(Objection(arrows, base, "kv/a.h"), "no arrow leads from base to kv");
  EXPECT_EQ(Objection(arrows, kv, "boost/json.hpp"),
            "Boost::json is not among the libraries of kv");
  EXPECT_EQ(Objection(arrows, kv, "testing/shared_data.h"), "no arrow leads from kv to testing");
  EXPECT_EQ(Objection(arrows, kv, "gtest/gtest.h"), "gtest/ belongs in tests");
  for (const char* allowed : {"base/a.h", "kv/b.h", "fmt/format.h", "vector", "sys/mman.h"}) {
    EXPECT_FALSE(Objection(arrows, kv, allowed)) << allowed;
  }
  EXPECT_FALSE(Objection(arrows, kv_test, "testing/shared_data.h"));
  EXPECT_FALSE(Objection(arrows, kv_test, "gtest/gtest.h"));
}

TEST(ArchitectureSelfTest, CirclesAreSeen) {
  const Arrows arrows = {{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}};
  EXPECT_THAT(Reachable(arrows, "b"), Contains("a"));
  EXPECT_THAT(Reachable({{"a", {}}}, "a"), SizeIs(1));
  EXPECT_THAT(ParseArrows(""), IsEmpty());
}

}  // namespace
}  // namespace quire::testing
