#include "engine/model_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"

namespace quire::engine {
namespace {

constexpr int kLogitRows = 64;
constexpr size_t kRowsInPace = 2;  // the newest token and, if all was accepted, the one before it
constexpr double kNewPassShare = 0.1;
constexpr double kPassOutlier = 4.0;

model::StepLimits LimitsOf(const ModelDrafter::Options& options, int max_positions) {
  return {.rows = options.rows,
          .sequences = options.max_num_seqs,
          .logit_rows = std::min(kLogitRows, options.max_num_seqs),
          .max_positions = max_positions};
}

// Of the sequence or, beyond its end, of its drafts.
TokenId TokenAt(const DraftJob& job, int position) {
  const std::vector<TokenId>& known = job.sequence->tokens;
  const auto certain = static_cast<int>(known.size());
  return position < certain ? known[position] : job.drafts[position - certain];
}

int LongestOf(const LoadedModel& draft, const ModelDrafter::Options& options) {
  return std::min(draft.config().context_length, options.max_model_len);
}

kv::KvCacheOptions CacheOptions(const LoadedModel& draft, const ModelDrafter::Options& options,
                                const kvstore::KvStore& store) {
  kv::KvCacheOptions cache = store.layout().CacheOptions(store.frames_total());
  cache.max_leases = options.max_num_seqs;
  cache.max_lease_tokens = LongestOf(draft, options);
  cache.prefix_caching = options.prefix_caching;
  return cache;
}

}  // namespace

Status CheckSameTokenizer(const text::Tokenizer& target, const text::Tokenizer& draft) {
  if (target.vocab_size() != draft.vocab_size()) {
    return Error{ErrorKind::kUsage,
                 fmt::format("the draft model's vocabulary has {} tokens and the model's {}: a "
                             "draft model needs the same tokenizer",
                             draft.vocab_size(), target.vocab_size()),
                 "draft-model"};
  }
  for (TokenId id = 0; id < target.vocab_size(); ++id) {
    if (target.TokenPiece(id) == draft.TokenPiece(id) && target.Type(id) == draft.Type(id)) {
      continue;
    }
    return Error{ErrorKind::kUsage,
                 fmt::format("token {} is \"{}\" to the draft model and \"{}\" to the model: a "
                             "draft model needs the same tokenizer",
                             id, draft.TokenPiece(id), target.TokenPiece(id)),
                 "draft-model"};
  }
  return Ok{};
}

Result<std::unique_ptr<Drafter>> ModelDrafter::Create(const LoadedModel& target,
                                                      const LoadedModel& draft,
                                                      const Options& options,
                                                      base::ThreadTeam& team) {
  QUIRE_RETURN_IF_ERROR(CheckSameTokenizer(target.tokenizer(), draft.tokenizer()));
  // Exact keys, and nothing that is sealed: drafts are taken back at any token.
  QUIRE_ASSIGN_OR_RETURN(
      const kvstore::KvLayout layout,
      kvstore::KvLayout::Create(model::KvGeometryOf(draft.config()),
                                {kernels::KvCodec::kF16, kernels::KvCodec::kF16}));
  QUIRE_CHECK(!layout.has_tail());
  const int64_t longest = LongestOf(draft, options);
  const int64_t frames = layout.group_count() * (options.kv_tokens / layout.block_size() + 1);
  const int64_t memory =
      std::max(frames, layout.frames_for_tokens(longest) + layout.group_count()) *
      static_cast<int64_t>(layout.frame_bytes());
  QUIRE_ASSIGN_OR_RETURN(kvstore::KvStore store, kvstore::KvStore::Create(layout, memory));
  QUIRE_RETURN_IF_ERROR(kv::KvCache::Validate(CacheOptions(draft, options, store)));
  std::unique_ptr<Drafter> drafter =
      std::make_unique<ModelDrafter>(draft, target.config(), options, std::move(store), team);
  return drafter;
}

ModelDrafter::ModelDrafter(const LoadedModel& draft, const model::ModelConfig& target,
                           const Options& options, kvstore::KvStore store, base::ThreadTeam& team)
    : model_(draft),
      team_(team),
      vocab_size_(target.vocab_size),
      eos_ids_(target.eos_ids),
      options_(options),
      store_(std::move(store)),
      transformer_({draft.config(), draft.weights(), kernels::DefaultKernels(), team},
                   store_.layout(), LimitsOf(options, LongestOf(draft, options))),
      cache_(CacheOptions(draft, options, store_)),
      samplers_(team.size(), Sampler(*kernels::DefaultKernels().vector, target.vocab_size)),
      widened_(team.size()) {}

void ModelDrafter::Forget(const sched::Sequence& sequence, const sched::Request& /*request*/) {
  const auto id = static_cast<size_t>(sequence.id.value);
  if (id < followers_.size()) followers_[id].reset();
}

ModelDrafter::Follower& ModelDrafter::FollowerOf(const DraftJob& job) {
  const SequenceId id = job.sequence->id;
  if (followers_.size() <= static_cast<size_t>(id.value)) followers_.resize(id.value + 1);
  std::unique_ptr<Follower>& follower = followers_[id.value];
  if (!follower) {
    follower = std::make_unique<Follower>();
    follower->filter.emplace(job.request->sampling, eos_ids_, vocab_size_);
  }
  return *follower;
}

void ModelDrafter::Propose(std::span<DraftJob* const> jobs) {
  ++round_;
  PlanCatchUp(jobs);
  while (!runs_.empty()) {
    base::Stopwatch watch;
    Forward();
    ChooseTokens();
    if (tokens_.size() <= kRowsInPace * runs_.size()) ObservePass(watch.Lap());
    // Who wants more goes on with the token just chosen.
    std::erase_if(runs_, [](const Run& run) {
      return !run.drafts || static_cast<int>(run.job->drafts.size()) >= run.job->drafts_max;
    });
    for (Run& run : runs_) {
      run.first += run.rows;
      run.rows = 1;
    }
  }
}

void ModelDrafter::ObservePass(double seconds) {
  if (pass_seconds_ == 0) pass_seconds_ = seconds;
  seconds = std::min(seconds, kPassOutlier * pass_seconds_);
  pass_seconds_ += kNewPassShare * (seconds - pass_seconds_);
}

// First passes: what the followers have not seen of their sequences, the newest token included.
// Those that are nearly there go first: a long prompt waits for what the others leave of a pass.
void ModelDrafter::PlanCatchUp(std::span<DraftJob* const> jobs) {
  for (const DraftJob* job : jobs) FollowerOf(*job).used = round_;
  runs_.clear();
  for (DraftJob* job : jobs) {
    Follower& follower = FollowerOf(*job);
    if (!Follow(*job, follower)) continue;
    const int first = follower.lease.committed();
    runs_.push_back(
        {job, &follower, first, static_cast<int>(job->sequence->tokens.size()) - first});
  }
  std::ranges::stable_sort(runs_, {}, &Run::rows);
  int budget = options_.rows;
  std::erase_if(runs_, [&](Run& run) {
    run.drafts = run.rows <= budget;
    run.rows = std::min(run.rows, budget);
    const int ahead = run.drafts ? run.job->drafts_max - 1 : 0;
    if (run.rows == 0 || !Reserve(*run.follower, run.first + run.rows + ahead, ahead)) return true;
    budget -= run.rows;
    return false;
  });
}

bool ModelDrafter::Follow(DraftJob& job, Follower& follower) {
  const std::span<const TokenId> tokens = job.sequence->tokens;
  const int room = cache_.options().max_lease_tokens - static_cast<int>(tokens.size());
  job.drafts_max = std::min(job.drafts_max, room + 1);  // the last one is not computed
  if (job.drafts_max < 1) return false;
  if (!follower.lease.held()) return Begin(job, follower);
  // The newest token is computed (again) for its logits.
  const auto known = tokens.first(tokens.size() - 1).subspan(follower.lease.committed());
  const auto accepted =
      std::ranges::mismatch(follower.guessed, known).in1 - follower.guessed.begin();
  const int certain = follower.lease.committed() + static_cast<int>(accepted);
  cache_.Commit(follower.lease, tokens.first(certain));
  cache_.Truncate(follower.lease, certain);
  follower.guessed.clear();
  return true;
}

bool ModelDrafter::Begin(const DraftJob& job, Follower& follower) {
  follower.guessed.clear();
  const kv::CacheKey key{job.request->cache_salt, job.request->adapter};
  do {
    const kv::PrefixMatch match = cache_.Match(job.sequence->tokens, key);
    if (auto lease = cache_.Reserve(match, match.tokens + 1)) {
      follower.lease = *std::move(lease);
      ExecuteCopies();
      return true;
    }
  } while (ForgetOldest());
  return false;
}

bool ModelDrafter::Reserve(Follower& follower, int length, int unverified) {
  while (!cache_.Extend(follower.lease, length, unverified)) {
    if (!ForgetOldest()) return false;
  }
  ExecuteCopies();
  return true;
}

// Gives back the memory of the sequence that has not drafted for longest; none of this round's.
bool ModelDrafter::ForgetOldest() {
  Follower* oldest = nullptr;
  for (const auto& follower : followers_) {
    if (!follower || !follower->lease.held() || follower->used == round_) continue;
    if (oldest == nullptr || follower->used < oldest->used) oldest = follower.get();
  }
  if (oldest == nullptr) return false;
  oldest->lease = kv::Lease();
  oldest->guessed.clear();
  return true;
}

void ModelDrafter::ExecuteCopies() {
  for (const kv::PendingCopy& copy : cache_.pending_copies()) store_.Execute(copy);
  cache_.CopiesDone();
}

// Computes the runs and commits what will not be computed again.
void ModelDrafter::Forward() {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  sequence_runs_.clear();
  tables_.clear();
  const int tables = store_.layout().table_count();
  tables_.reserve(runs_.size() * tables);  // viewed by sequence_runs_
  for (const Run& run : runs_) {
    const int first_row = static_cast<int>(tokens_.size());
    for (int position = run.first; position < run.first + run.rows; ++position) {
      const TokenId token = TokenAt(*run.job, position);
      // Padding of the target's vocabulary stands for no text: what it means is anybody's guess.
      tokens_.push_back(token < model_.config().vocab_size ? token : 0);
      positions_.push_back(position);
    }
    const size_t first_table = tables_.size();
    for (int table = 0; table < tables; ++table) {
      tables_.push_back(kvstore::TableOf(run.follower->lease, table));
    }
    sequence_runs_.push_back(
        {first_row, run.rows, run.first, std::span(tables_).subspan(first_table, tables)});
    if (run.drafts) logit_rows_.push_back(static_cast<int>(tokens_.size()) - 1);
  }
  transformer_.Forward({tokens_, positions_, sequence_runs_, logit_rows_}, store_);
  for (const Run& run : runs_) {
    const std::span<const TokenId> known = run.job->sequence->tokens;
    Follower& follower = *run.follower;
    if (run.drafts) follower.guessed.push_back(TokenAt(*run.job, run.first + run.rows - 1));
    const int last = run.first + run.rows - static_cast<int>(run.drafts);
    if (last < static_cast<int>(known.size())) cache_.Commit(follower.lease, known.first(last));
  }
}

void ModelDrafter::ChooseTokens() {
  std::vector<const Run*> drafting;
  for (const Run& run : runs_) {
    if (run.drafts) drafting.push_back(&run);
  }
  const int count = static_cast<int>(drafting.size());
  for (int first = 0; first < count; first += kLogitRows) {
    const int slice = std::min(kLogitRows, count - first);
    const MatrixView<const float> logits = transformer_.Logits(first, slice);
    team_.ParallelFor(slice, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        const Run& run = *drafting[first + i];
        const auto row = Widen({logits.row(i), static_cast<size_t>(logits.cols)}, thread);
        run.job->drafts.push_back(Choose(samplers_[thread], row, run));
      }
    });
  }
}

// Vocabularies of models with one tokenizer may be padded differently: to the target's size.
std::span<const float> ModelDrafter::Widen(std::span<const float> logits, int thread) {
  const auto wanted = static_cast<size_t>(vocab_size_);
  if (logits.size() >= wanted) return logits.first(wanted);
  std::vector<float>& widened = widened_[thread];
  widened.assign(logits.begin(), logits.end());
  widened.resize(wanted, -std::numeric_limits<float>::infinity());
  return widened;
}

TokenId ModelDrafter::Choose(Sampler& sampler, std::span<const float> logits,
                             const Run& run) const {
  const DraftJob& job = *run.job;
  const sched::SamplingParams& wanted = job.request->sampling;
  sched::SamplingParams params;
  params.temperature = 0;
  params.logit_bias = wanted.logit_bias;
  if (options_.choice == DraftChoice::kDrawn) {
    params.temperature = wanted.temperature;
    params.top_k = wanted.top_k;
    params.top_p = wanted.top_p;
    params.min_p = wanted.min_p;
  }
  const int position = static_cast<int>(job.sequence->tokens.size() + job.drafts.size());
  const TokenFilter::Limits limits = run.follower->filter->Next(job.sequence->output(), {});
  const Result<SampledToken> token =
      sampler.Sample({.logits = logits,
                      .params = &params,
                      .key = {wanted.seed + job.sequence->index, 0, position},
                      .banned = limits.banned,
                      .allowed = limits.allowed});
  // A small model's overflow must not end a request: any token is a guess.
  return token.ok() ? token->token : TokenId{0};
}

}  // namespace quire::engine
