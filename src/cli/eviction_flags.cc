#include "cli/eviction_flags.h"

#include <algorithm>

namespace quire::cli {

Status ParseKvBudget(const std::string& text, kv::EvictionOptions& options) {
  options.budget_tokens = 0;
  if (base::flags_internal::ParseValue(text, options.budget_tokens) && options.budget_tokens > 1) {
    return Ok{};
  }
  options.budget_tokens = 0;
  if (base::flags_internal::ParseValue(text, options.budget_ratio) && options.budget_ratio > 0 &&
      options.budget_ratio <= 1) {
    return Ok{};
  }
  return Error{ErrorKind::kUsage,
               fmt::format("'{}' is no budget; give a number of tokens such as 512, or a share of "
                           "the prompt such as 0.2",
                           text),
               "kv-budget"};
}

void EvictionFlags::Declare(base::FlagSet& flags) {
  std::vector<std::string> names;
  for (const kv::EvictionPolicy policy : kv::kEvictionPolicies) names.emplace_back(NameOf(policy));
  flags.Group("Token eviction");
  flags
      .Add("kv-eviction", &policy_,
           "Which tokens keep their keys and values when not all may. A request's kv_policy says "
           "otherwise.")
      .OneOf(std::move(names));
  flags
      .Add("kv-budget", &budget_,
           "Tokens that a sequence keeps, or (up to 1) the share of its prompt.")
      .Metavar("TOKENS|RATIO");
  flags.Add("kv-sinks", &sinks_, "First tokens that are always kept.").Unit("tokens").AtLeast(0);
  flags
      .Add("kv-recent", &recent_,
           "Newest tokens that are always kept; by default half of the budget (h2o), 32 (snapkv), "
           "1 (tova), all but the first (streaming).")
      .Unit("tokens")
      .AtLeast(1);
}

Result<kv::EvictionOptions> EvictionFlags::Options() const {
  kv::EvictionOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.policy, kv::ParseEvictionPolicy(policy_));
  QUIRE_RETURN_IF_ERROR(ParseKvBudget(budget_, options));
  options.sinks = sinks_;
  options.recent = recent_;
  QUIRE_RETURN_IF_ERROR(kv::ValidateEviction(options));
  return options;
}

}  // namespace quire::cli
