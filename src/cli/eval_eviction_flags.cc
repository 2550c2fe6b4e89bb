#include "cli/eval_eviction_flags.h"

#include <fmt/format.h>

#include "cli/eval_flags.h"
#include "cli/eviction_flags.h"

namespace quire::cli {
namespace {

std::vector<std::string> Items(const std::vector<std::string>& lists) {
  std::vector<std::string> items;
  for (const std::string& list : lists) {
    for (const std::string_view item : SplitAtCommas(list)) items.emplace_back(item);
  }
  return items;
}

}  // namespace

void EvalEvictionFlags::Declare(base::FlagSet& flags) {
  flags.Group("Token eviction");
  flags
      .Add("kv-eviction", &policies_,
           "Policies to compare with the full cache, as a list or repeated: none, streaming, h2o, "
           "snapkv, tova. Every policy runs with every budget and every number of sinks.")
      .Metavar("POLICIES");
  flags
      .Add("kv-budget", &budgets_,
           "Budgets, as a list or repeated: tokens that a sequence keeps, or (with a point) the "
           "share of its prompt; without it 0.2.")
      .Metavar("BUDGETS");
  flags
      .Add("kv-sinks", &sinks_,
           "First tokens that are always kept, as a list or repeated; without it 4.")
      .Metavar("TOKENS");
  flags
      .Add("kv-recent", &recent_,
           "Newest tokens that are always kept; by default half of the budget (h2o), 32 (snapkv), "
           "1 (tova), all but the first (streaming).")
      .Unit("tokens")
      .AtLeast(1);
}

Result<std::vector<int>> ParseSinkLists(const std::vector<std::string>& lists,
                                        std::vector<int> by_default) {
  std::vector<int> numbers;
  for (const std::string& item : Items(lists)) {
    int& number = numbers.emplace_back();
    if (base::flags_internal::ParseValue(item, number) && number >= 0) continue;
    return Error{
        ErrorKind::kUsage,
        fmt::format("'{}' is no number of tokens; give --kv-sinks a list such as 0,4", item),
        "kv-sinks"};
  }
  return numbers.empty() ? by_default : numbers;
}

Result<std::vector<eval::EvictionVariant>> EvalEvictionFlags::Variants() const {
  kv::EvictionOptions options;
  options.recent = recent_;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<int> sinks, ParseSinkLists(sinks_, {options.sinks}));
  std::vector<std::string> budgets = Items(budgets_);
  if (budgets.empty()) budgets = {"0.2"};
  std::vector<eval::EvictionVariant> variants;
  for (const std::string& name : Items(policies_)) {
    QUIRE_ASSIGN_OR_RETURN(options.policy, kv::ParseEvictionPolicy(name));
    for (const std::string& budget : budgets) {
      QUIRE_RETURN_IF_ERROR(ParseKvBudget(budget, options));
      for (const int first : sinks) {
        options.sinks = first;
        QUIRE_RETURN_IF_ERROR(kv::ValidateEviction(options));
        if (options.evicts()) variants.push_back({budget, options});
      }
    }
  }
  return variants;
}

std::string NameOf(const eval::EvictionVariant& eviction) {
  if (!eviction.options.evicts()) return "full cache";
  return fmt::format("{} {}, sinks {}", kv::NameOf(eviction.options.policy), eviction.budget,
                     eviction.options.sinks);
}

std::vector<std::string> EvictionCells(const eval::EvictionVariant& eviction) {
  const bool evicts = eviction.options.evicts();
  return {std::string(kv::NameOf(eviction.options.policy)), evicts ? eviction.budget : "-",
          evicts ? fmt::format("{}", eviction.options.sinks) : "-"};
}

void AddEviction(const eval::EvictionVariant& eviction, boost::json::object& out) {
  out["kv_eviction"] = kv::NameOf(eviction.options.policy);
  if (!eviction.options.evicts()) return;
  out["kv_budget"] = eviction.budget;
  out["kv_sinks"] = eviction.options.sinks;
}

}  // namespace quire::cli
