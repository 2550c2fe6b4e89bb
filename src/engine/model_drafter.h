// ModelDrafter: a smaller model with the same tokenizer drafts, as in 2211.17192 and 2302.01318.
//
// Owns the small model's KV memory and forward pass; borrows the model and the threads. All jobs
// draft together, one pass per drafted token. It follows a sequence through its KV: what the target
// accepted was computed while drafting, what was rejected is truncated, and what it has not seen
// yet (the prompt; what another drafter had drafted) it computes first, at most `rows` tokens a
// round, so that a long prompt does not hold up the others. Memory is found by forgetting sequences
// that draft least recently.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/drafter.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "engine/sampler.h"
#include "engine/token_filter.h"
#include "kv/kv_cache.h"
#include "kvstore/kv_store.h"
#include "model/transformer.h"

namespace quire::engine {

// kUsage, with the first difference, unless tokens mean the same to both models.
Status CheckSameTokenizer(const text::Tokenizer& target, const text::Tokenizer& draft);

class ModelDrafter : public Drafter {
 public:
  struct Options {
    int max_num_seqs = 64;
    int rows = 512;         // tokens of one pass
    int max_model_len = 0;  // of the target
    int64_t kv_tokens = 0;  // that its KV memory holds
    kv::PrefixCaching prefix_caching = kv::PrefixCaching::kOn;
    DraftChoice choice = DraftChoice::kDrawn;
  };

  // kUsage: not the target's tokenizer; kExhausted: no memory. All borrowed things outlive it.
  static Result<std::unique_ptr<Drafter>> Create(const LoadedModel& target,
                                                 const LoadedModel& draft, const Options& options,
                                                 base::ThreadTeam& team);
  // For Create.
  ModelDrafter(const LoadedModel& draft, const model::ModelConfig& target, const Options& options,
               kvstore::KvStore store, base::ThreadTeam& team);

  std::string_view name() const override { return "draft model"; }
  void Propose(std::span<DraftJob* const> jobs) override;
  double PassSeconds() const override { return pass_seconds_; }
  void Forget(const sched::Sequence& sequence, const sched::Request& request) override;

  const kv::KvCache& cache() const { return cache_; }

 private:
  // A sequence as the small model knows it.
  //
  //     tokens |<---- lease.committed() ---->|<- guessed ->|
  struct Follower {
    kv::Lease lease;
    std::vector<TokenId> guessed;       // computed: the newest token, then drafts
    uint64_t used = 0;                  // the round in which it drafted last
    std::optional<TokenFilter> filter;  // what the request excludes, its grammar aside
  };
  // A sequence's part in a pass.
  struct Run {
    DraftJob* job = nullptr;
    Follower* follower = nullptr;
    int first = 0;  // position
    int rows = 0;
    bool drafts = false;  // its last row is the newest token: a draft follows
  };

  Follower& FollowerOf(const DraftJob& job);
  // Lets go of what was rejected. False: nothing can be done for this job.
  bool Follow(DraftJob& job, Follower& follower);
  bool Begin(const DraftJob& job, Follower& follower);
  bool Reserve(Follower& follower, int length, int unverified);
  bool ForgetOldest();
  void PlanCatchUp(std::span<DraftJob* const> jobs);
  void ExecuteCopies();
  void Forward();
  void ChooseTokens();
  void ObservePass(double seconds);
  TokenId Choose(Sampler& sampler, std::span<const float> logits, const Run& run) const;
  std::span<const float> Widen(std::span<const float> logits, int thread);

  const LoadedModel& model_;
  base::ThreadTeam& team_;
  int vocab_size_;                // the target's
  std::vector<TokenId> eos_ids_;  // the target's
  Options options_;
  kvstore::KvStore store_;
  model::Transformer transformer_;
  kv::KvCache cache_;
  std::vector<Sampler> samplers_;                     // [threads]
  std::vector<std::vector<float>> widened_;           // [threads][vocab_size]
  std::vector<std::unique_ptr<Follower>> followers_;  // by SequenceId
  uint64_t round_ = 0;
  double pass_seconds_ = 0;

  std::vector<Run> runs_;  // of the pass
  std::vector<TokenId> tokens_;
  std::vector<int> positions_;
  std::vector<int> logit_rows_;
  std::vector<kvstore::SequenceRun> sequence_runs_;
  std::vector<kvstore::BlockTable> tables_;
};

}  // namespace quire::engine
