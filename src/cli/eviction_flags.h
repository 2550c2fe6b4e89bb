// EvictionFlags: which tokens keep their KV where a request's `kv_policy` does not say.
#pragma once

#include <optional>
#include <string>

#include "base/flags.h"
#include "base/result.h"
#include "kv/eviction.h"

namespace quire::cli {

// A number of tokens ("512") or a share of the prompt ("0.2"), into `options`. kUsage otherwise.
Status ParseKvBudget(const std::string& text, kv::EvictionOptions& options);

class EvictionFlags {
 public:
  void Declare(base::FlagSet& flags);
  Result<kv::EvictionOptions> Options() const;

 private:
  std::string policy_ = "none";
  std::string budget_ = "0.2";
  int sinks_ = kv::EvictionOptions().sinks;
  std::optional<int> recent_;
};

}  // namespace quire::cli
