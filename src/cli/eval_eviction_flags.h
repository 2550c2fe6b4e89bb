// EvalEvictionFlags: the eviction policies that an evaluation compares with the full cache. The
// flags are those of EvictionFlags, as lists: every policy runs with every budget and every number
// of sinks.
#pragma once

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "base/flags.h"
#include "base/result.h"
#include "eval/kv_variant.h"

namespace quire::cli {

class EvalEvictionFlags {
 public:
  void Declare(base::FlagSet& flags);

  // In the order given. The full cache is left out, as it always runs: none are left where no
  // policy was named but none. kUsage for what ValidateEviction refuses.
  Result<std::vector<eval::EvictionVariant>> Variants() const;

 private:
  std::vector<std::string> policies_;
  std::vector<std::string> budgets_;
  std::vector<std::string> sinks_;
  std::optional<int> recent_;
};

// The numbers of all lists ("0,4"), or `by_default` if there are none. kUsage.
Result<std::vector<int>> ParseSinkLists(const std::vector<std::string>& lists,
                                        std::vector<int> by_default);

// "h2o 0.2, sinks 4", "full cache": for plots.
std::string NameOf(const eval::EvictionVariant& eviction);

// What a row says of its policy. The budget of the full cache is "-".
inline const std::vector<std::string> kEvictionColumns = {"policy", "budget", "sinks"};
std::vector<std::string> EvictionCells(const eval::EvictionVariant& eviction);
// Adds what EvictionCells says; a budget as it was given.
void AddEviction(const eval::EvictionVariant& eviction, boost::json::object& out);

}  // namespace quire::cli
