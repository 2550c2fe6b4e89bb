#include "server/kv_policy.h"

#include <string>

#include "server/field_reader.h"

namespace quire::server {
namespace {

constexpr double kMost = 1 << 24;

void ReadBudget(FieldReader& reader, kv::EvictionOptions& options) {
  double budget = options.budget_ratio;
  reader.Double("budget", budget, {0, kMost});
  if (budget <= 1) {
    options.budget_ratio = budget;
  } else if (budget == static_cast<int>(budget)) {
    options.budget_tokens = static_cast<int>(budget);
  } else {
    reader.Fail("budget", "'budget' must be a whole number of tokens, or a share up to 1");
  }
}

void ReadHeavyHitters(FieldReader& reader, kv::EvictionOptions& options) {
  std::string name = "sum";
  reader.String("heavy_hitters", name);
  if (name == "sum_per_query") {
    options.heavy_hitters = kv::HeavyHitters::kSumPerQuery;
  } else if (name != "sum") {
    reader.Fail("heavy_hitters", "'heavy_hitters' must be \"sum\" or \"sum_per_query\"");
  }
}

}  // namespace

Result<kv::EvictionOptions> ParseKvPolicy(const boost::json::value& value) {
  if (!value.is_object()) {
    return MakeError(ErrorKind::kUsage,
                     "must be an object such as {{\"policy\": \"h2o\", \"budget\": 512}}");
  }
  FieldReader reader(value.get_object());
  kv::EvictionOptions options;
  std::string policy;
  reader.String("policy", policy);
  if (policy.empty()) reader.Fail("policy", "'policy' is missing");
  ReadBudget(reader, options);
  reader.Int("sinks", options.sinks, {0, kMost});
  reader.Int("recent", options.recent, {1, kMost});
  reader.Int("pin_prefix_tokens", options.pinned, {0, kMost});
  reader.Int("observed_queries", options.observed, {1, kMost});
  reader.Int("pooled_neighbours", options.pooled, {1, kMost});
  ReadHeavyHitters(reader, options);
  const std::vector<std::string> unknown = reader.Unread({});
  if (!unknown.empty()) reader.Fail(unknown.front(), "has no field '" + unknown.front() + "'");
  QUIRE_RETURN_IF_ERROR(reader.status());
  QUIRE_ASSIGN_OR_RETURN(options.policy, kv::ParseEvictionPolicy(policy));
  QUIRE_RETURN_IF_ERROR(kv::ValidateEviction(options));
  return options;
}

}  // namespace quire::server
