// Engine: the spine. Requests in, updates out; in between one step after another over all sequences
// that run together.
//
// Owns the KV store, the scheduler (and with it the KV cache), the forward pass and its threads;
// borrows the loaded model. One thread calls it. Two engines given the same requests say the same;
// in which steps may differ where masks of grammars take long.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "engine/batch_builder.h"
#include "engine/engine_options.h"
#include "engine/kv_eviction.h"
#include "engine/model_loader.h"
#include "engine/output.h"
#include "engine/sampler.h"
#include "engine/sequence_grammar.h"
#include "engine/sequence_text.h"
#include "engine/speculator.h"
#include "engine/token_counts.h"
#include "engine/token_filter.h"
#include "kvstore/kv_store.h"
#include "model/transformer.h"
#include "sched/scheduler.h"

namespace quire::engine {

// Receives news in the order in which sequences were computed.
using UpdateSink = std::function<void(const SequenceUpdate&)>;

// Where the time of all steps went, in seconds, and how much was computed.
struct EngineStats {
  int64_t steps = 0;
  double schedule_s = 0;
  double forward_s = 0;
  double sample_s = 0;
  double emit_s = 0;
};

class Engine {
 public:
  // kUsage or kExhausted when the options cannot work, with the sizes needed, available and
  // possible. `model` and `team` must outlive the engine.
  static Result<std::unique_ptr<Engine>> Create(const LoadedModel& model,
                                                const EngineOptions& options,
                                                base::ThreadTeam& team);

  // For Create, which checks the options.
  struct Parts {
    const LoadedModel& model;
    base::ThreadTeam& team;
    kvstore::KvStore store;
    sched::SchedulerOptions scheduler;
    kv::KvCacheOptions cache;
    uint64_t seed = 0;
    kv::EvictionOptions eviction = {};
    double mask_budget_s = 0;
    SpeculationOptions speculation;
  };
  explicit Engine(Parts parts);

  // Compiles a constraint and computes what may come first, ahead of the request that brings it.
  // Any thread may call this.
  Status PrepareConstraint(const sched::OutputConstraint& constraint) {
    QUIRE_ASSIGN_OR_RETURN(const auto masks, grammar_cache_.Get(constraint));
    masks->PrepareStart();
    return Ok{};
  }

  // Queues a request. An error is the client's (too long, bad token ids, ...) or kExhausted.
  Result<RequestId> Submit(sched::Request request);

  // Ends a request; no update follows. Its frames are free at once, or when the running step ends.
  void Cancel(RequestId request);
  // Gives all KV memory of running sequences back; they resume. An answer never shows it.
  void PreemptAll() { scheduler_.PreemptAll(); }

  // Forgets every prefix that nobody holds.
  void DropCachedPrefixes() { scheduler_.DropCachedPrefixes(); }

  // Lets `drafter` guess ahead, where those added before it have no idea. Between steps.
  void AddDrafter(std::unique_ptr<Drafter> drafter) { speculator_.Add(std::move(drafter)); }

  // Computes one step and reports what came of it. False: there was nothing to do.
  bool Step(const UpdateSink& sink);

  bool idle() const { return scheduler_.idle(); }
  const LoadedModel& model() const { return model_; }
  const sched::Scheduler& scheduler() const { return scheduler_; }
  const kvstore::KvStore& store() const { return store_; }
  const KvEviction& eviction_state() const { return eviction_; }
  uint64_t seed() const { return seed_; }  // for requests that bring none
  const kv::EvictionOptions& eviction() const { return default_eviction_; }  // likewise
  int max_model_len() const { return scheduler_.options().max_model_len; }
  size_t scratch_bytes() const { return transformer_.scratch_bytes(); }
  const EngineStats& stats() const { return stats_; }
  bool speculates() const { return speculator_.active(); }
  const SpeculationStats& speculation() const { return speculator_.stats(); }

 private:
  // What the engine knows of a sequence beyond its tokens.
  struct SequenceRecord {
    SequenceText text;
    std::optional<TokenCounts> counts;            // only with penalties
    std::optional<text::GrammarMatcher> grammar;  // only with a constraint; has seen the output
    TokenFilter filter;                           // what may come next
    int drafts_accepted = 0;
    int drafts_rejected = 0;
    std::vector<TokenId> output = {};  // as drawn: while a step draws, ahead of the scheduler's
  };

  // Something to take from a row of logits. A sequence with drafts draws from several rows: from
  // the first, and from each that follows as long as what was drawn is what the draft says. Its
  // draws follow each other in draws_.
  enum class DrawKind { kToken, kBeam, kPromptLogprob };
  struct Draw {
    int logit_row = 0;
    DrawKind kind = DrawKind::kToken;
    SequenceId sequence;
    int position = 0;                             // of the token that is drawn or scored
    bool continues = false;                       // the draw before it, by a draft
    std::optional<TokenId> draft = std::nullopt;  // what the next draw's row assumes
    bool drawn = false;    // kToken: false where a draw before it ended the row
    bool goes_on = false;  // what was drawn is the draft, and more may follow
    std::optional<sched::FinishReason> grammar_end =
        std::nullopt;  // what the constraint says of the token
    Result<SampledToken> result = SampledToken{};
  };

  Status CheckTokens(std::span<const TokenId> tokens) const;
  Status CheckForced(const sched::Request& request) const;
  void ForgetFinished();
  const sched::StepPlan& Plan();
  void PrepareMasks();
  void CopyFrames(std::span<const kv::PendingCopy> copies);
  void Sample(const sched::StepPlan& plan, base::Stopwatch& watch);
  void PrepareDraws(const sched::StepPlan& plan);
  void DrawRows(const MatrixView<const float>& logits, int first_row, size_t begin, size_t end);
  void DrawOne(Sampler& sampler, const float* logits, Draw& draw);
  void DrawToken(Sampler& sampler, std::span<const float> logits, Draw& draw);
  void CollectOutputs();
  std::span<Draw> DrawnTogether(size_t first);
  void ObserveDrafts(size_t first);
  void ProposeDrafts();
  void TrimToGrammar(SequenceId id, std::vector<TokenId>& drafts) const;
  void Emit(const UpdateSink& sink);
  void AddPromptLogprob(Draw& draw, SequenceUpdate& update) const;
  void AddTokens(std::span<Draw> draws, SequenceUpdate& update);
  std::optional<sched::FinishReason> AddToken(Draw& draw, std::optional<sched::FinishReason> finish,
                                              SequenceUpdate& update);
  void EmitBeams(const sched::RequestState& request, const UpdateSink& sink) const;
  void EmitScored(const sched::RequestState& request, const UpdateSink& sink) const;
  static TokenLogprobs ToLogprobs(const SampledToken& sampled);
  StopReason StopReasonOf(TokenId token) const;
  text::DecodeOptions DecodeOptionsOf(const sched::Request& request) const;
  void PrepareRecord(SequenceId id, int position);

  const LoadedModel& model_;
  base::ThreadTeam& team_;
  kvstore::KvStore store_;
  sched::Scheduler scheduler_;
  uint64_t seed_ = 0;
  kv::EvictionOptions default_eviction_;
  model::Transformer transformer_;
  KvEviction eviction_;
  BatchBuilder builder_;
  std::vector<Sampler> samplers_;                               // [threads]
  std::vector<std::unique_ptr<SequenceRecord>> records_;        // by SequenceId
  std::vector<std::optional<text::StopStrings>> stop_strings_;  // by RequestId
  GrammarCache grammar_cache_;
  // By RequestId, only with a constraint: at the start of the text, for its sequences to copy.
  std::vector<std::optional<text::GrammarMatcher>> grammars_;
  double mask_budget_s_ = 0;
  std::vector<SequenceId> without_mask_;  // of the step
  size_t masks_first_ = 0;                // whose turn it is
  Speculator speculator_;
  double mask_deadline_s_ = 0;                         // of the step's draws beyond the first
  std::vector<Draw> draws_;                            // of the step, by logit row
  std::vector<std::pair<size_t, size_t>> draw_units_;  // what is drawn one after the other
  std::vector<TokenId> drawn_tokens_;                  // of the step
  std::vector<sched::SequenceOutput> outputs_;  // of the step; views draws_ and drawn_tokens_
  EngineStats stats_;
};

}  // namespace quire::engine
