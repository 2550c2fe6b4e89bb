// OracleDrafter: knows what comes, and lies as often as it is told to. For tests and benchmarks of
// speculative decoding whose acceptance is set, not found.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/drafter.h"

namespace quire::testing {

class OracleDrafter : public engine::Drafter {
 public:
  // Drafts are of at most `length` tokens, each right with probability `right`.
  OracleDrafter(int length, double right, uint64_t seed)
      : length_(length), right_(right), rng_(seed, 0, 0) {}

  // Sequence `index` of a request with this prompt will say `output`.
  void Learn(const std::vector<TokenId>& prompt, int index, std::vector<TokenId> output) {
    outputs_[{prompt, index}] = std::move(output);
  }

  std::string_view name() const override { return "oracle"; }

  void Propose(std::span<engine::DraftJob* const> jobs) override {
    for (engine::DraftJob* job : jobs) {
      const auto known = outputs_.find({job->request->prompt, job->sequence->index});
      if (known == outputs_.end()) continue;
      const size_t said = job->sequence->output_tokens();
      const int most = std::min(job->drafts_max, length_);
      for (size_t i = said; i < known->second.size() && i < said + most; ++i) {
        const bool lies = rng_.NextUnit() >= right_;
        job->drafts.push_back(known->second[i] ^ (lies ? 1 : 0));
      }
    }
  }
  void Forget(const sched::Sequence&, const sched::Request&) override {}

 private:
  int length_;
  double right_;
  base::CounterRng rng_;
  std::map<std::pair<std::vector<TokenId>, int>, std::vector<TokenId>> outputs_;
};

}  // namespace quire::testing
