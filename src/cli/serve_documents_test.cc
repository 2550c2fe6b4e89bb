// What docs/SERVING.md and deploy/ say of the server, held against a running one: metrics, flags.
#include <algorithm>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"
#include "cli/serve_process_for_test.h"
#include "server/http_test_client.h"

namespace quire::cli {
namespace {

using ::testing::IsEmpty;

// Everything in `text` that matches, or its first group.
std::set<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[it->size() > 1 ? 1 : 0]);
  }
  return found;
}

std::set<std::string> Without(const std::set<std::string>& left,
                              const std::set<std::string>& right) {
  std::set<std::string> rest;
  std::set_difference(left.begin(), left.end(), right.begin(), right.end(),
                      std::inserter(rest, rest.end()));
  return rest;
}

constexpr const char* kMetricName = R"(\b(?:quire_(?!FLAGS)|vllm:)[a-z0-9_]+)";

std::string ServedMetrics() {
  const ServeProcess server({"--threads", "1", "--speculate", "ngram"});
  server::TestClient client(server.port());
  return client.Ask(server::Get("/metrics")).body;
}

// The expressions of a Grafana dashboard, wherever they are nested.
void CollectQueries(const boost::json::value& value, std::vector<std::string>& queries) {
  if (const auto* list = value.if_array()) {
    for (const boost::json::value& item : *list) CollectQueries(item, queries);
  } else if (const auto* object = value.if_object()) {
    for (const auto& [key, member] : *object) {
      const bool is_query = key == "expr" || key == "definition" || key == "query";
      if (is_query && member.is_string()) queries.emplace_back(member.get_string());
      CollectQueries(member, queries);
    }
  }
}

TEST(ServeDocuments, TheDashboardAsksForMetricsThatAServerHas) {
  const auto dashboard = boost::json::parse(ScratchFolder::Read("deploy/grafana-dashboard.json"));
  std::vector<std::string> queries;
  CollectQueries(dashboard, queries);
  std::set<std::string> asked;
  for (const std::string& query : queries) asked.merge(Matches(query, kMetricName));
  EXPECT_GT(asked.size(), 40u);
  // At the start of a line: a series, not a comment.
  const std::set<std::string> served = Matches(ServedMetrics(), R"(\n([a-z0-9_:]+)\{)");
  EXPECT_THAT(Without(asked, served), IsEmpty());
}

TEST(ServeDocuments, EveryMetricIsDocumentedAndEveryDocumentedOneIsThere) {
  const std::set<std::string> served = Matches(ServedMetrics(), R"(# TYPE ([a-z0-9_:]+) )");
  const std::set<std::string> documented =
      Matches(ScratchFolder::Read("docs/SERVING.md"), kMetricName);
  EXPECT_GT(served.size(), 50u);
  EXPECT_THAT(Without(served, documented), IsEmpty()) << "not in docs/SERVING.md";
  EXPECT_THAT(Without(documented, served), IsEmpty()) << "not served";
}

TEST(ServeDocuments, EveryFlagIsDocumented) {
  const std::string help = RunBinary("serve --help").out;
  std::set<std::string> flags = Matches(help, R"(--(?:\[no-\])?[a-z][a-z-]+)");
  ASSERT_TRUE(flags.erase("--[no-]enable-prefix-caching"));
  flags.insert("--no-enable-prefix-caching");
  EXPECT_GT(flags.size(), 20u);
  const std::set<std::string> documented =
      Matches(ScratchFolder::Read("docs/SERVING.md"), R"(--[a-z][a-z-]+)");
  flags.erase("--help");
  EXPECT_THAT(Without(flags, documented), IsEmpty());
}

// What deploy/ gives to `quire serve`; --dump-config reads flags and stops.
TEST(ServeDocuments, TheFlagsInDeployAreAccepted) {
  const std::string unit = ScratchFolder::Read("deploy/quire.service");
  const std::set<std::string> started =
      Matches(unit, R"(\nExecStart=\S+/quire (serve .*) \$QUIRE_FLAGS)");
  const std::set<std::string> shown =
      Matches(unit + ScratchFolder::Read("deploy/README.md"), R"(QUIRE_FLAGS=(--[^\n]+))");
  ASSERT_EQ(started.size(), 1u);
  ASSERT_EQ(shown.size(), 1u);
  const BinaryResult result = RunBinary(*started.begin() + " " + *shown.begin() + " --dump-config");
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace quire::cli
