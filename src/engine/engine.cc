#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/clock.h"

namespace quire::engine {
namespace {

// Logits are computed for so many rows at a time: enough to amortise a pass over the output matrix,
// few enough to keep the buffer small (64 rows x 152k tokens: 39 MB).
constexpr int kLogitRows = 64;

constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

model::StepLimits LimitsOf(const sched::SchedulerOptions& options) {
  return {.rows = options.max_num_batched_tokens,
          .sequences = options.max_num_seqs,
          .logit_rows = std::min(kLogitRows, options.max_num_batched_tokens),
          .max_positions = options.max_model_len};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const LoadedModel& model,
                                               const EngineOptions& options,
                                               base::ThreadTeam& team) {
  QUIRE_ASSIGN_OR_RETURN(
      const kvstore::KvLayout layout,
      kvstore::KvLayout::Create(model::KvGeometryOf(model.config()), options.kv_format));
  const size_t memory = options.kv_cache_memory.value_or(
      DefaultKvCacheMemory(layout, options, model.config().context_length));
  QUIRE_ASSIGN_OR_RETURN(kvstore::KvStore store, kvstore::KvStore::Create(layout, memory));

  QUIRE_ASSIGN_OR_RETURN(const ControlPlane control,
                         ControlPlaneFor(options, model.config(), layout, store.frames_total()));
  return std::make_unique<Engine>(Parts{model, team, std::move(store), control.scheduler,
                                        control.cache, options.seed, options.eviction,
                                        options.mask_budget_s});
}

Engine::Engine(Parts parts)
    : model_(parts.model),
      team_(parts.team),
      store_(std::move(parts.store)),
      scheduler_(parts.scheduler, parts.cache),
      seed_(parts.seed),
      default_eviction_(parts.eviction),
      transformer_({model_.config(), model_.weights(), kernels::DefaultKernels(), team_},
                   store_.layout(), LimitsOf(parts.scheduler)),
      eviction_(kernels::DefaultKernels(), store_, team_),
      builder_(LimitsOf(parts.scheduler), store_.layout().table_count()),
      samplers_(team_.size(),
                Sampler(*kernels::DefaultKernels().vector, model_.config().vocab_size)),
      grammar_cache_(model_.tokenizer(), model_.config().vocab_size),
      mask_budget_s_(parts.mask_budget_s) {}

Result<RequestId> Engine::Submit(sched::Request request) {
  QUIRE_RETURN_IF_ERROR(ValidateSampling(request.sampling, model_.config().vocab_size));
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= model_.config().vocab_size) {
      return Error{ErrorKind::kUsage,
                   fmt::format("token id {} is outside the model's vocabulary of {}", token,
                               model_.config().vocab_size),
                   "prompt"};
    }
  }
  QUIRE_ASSIGN_OR_RETURN(text::StopStrings stop_strings,
                         text::StopStrings::Create(request.sampling.stop));
  QUIRE_RETURN_IF_ERROR(ValidateConstraint(request));
  std::shared_ptr<text::GrammarMasks> masks;
  std::vector<TokenId> end_tokens;
  if (request.sampling.constraint) {
    QUIRE_ASSIGN_OR_RETURN(masks, grammar_cache_.Get(*request.sampling.constraint));
    end_tokens = sched::EndTokens(request.sampling, model_.config().eos_ids);
  }
  // best_of ranks by log probability, whether or not the client wants to see it.
  if (request.sequences() > request.n && !request.sampling.logprobs) {
    request.sampling.logprobs = 0;
  }
  QUIRE_ASSIGN_OR_RETURN(const RequestId id, scheduler_.Submit(std::move(request)));
  if (stop_strings_.size() <= static_cast<size_t>(id.value)) stop_strings_.resize(id.value + 1);
  stop_strings_[id.value].emplace(std::move(stop_strings));
  if (grammars_.size() <= static_cast<size_t>(id.value)) grammars_.resize(id.value + 1);
  grammars_[id.value].reset();
  if (masks) grammars_[id.value].emplace(std::move(masks), std::move(end_tokens));
  return id;
}

void Engine::Cancel(RequestId request) {
  scheduler_.Cancel(request);
}

bool Engine::Step(const UpdateSink& sink) {
  base::Stopwatch watch;
  const sched::StepPlan& plan = Plan();
  if (plan.empty()) return false;
  CopyFrames(plan.copies);
  model::Batch batch = builder_.Build(plan, scheduler_);
  eviction_.Plan(plan, scheduler_);
  batch.score_requests = eviction_.requests();
  batch.scores = eviction_.scores();
  stats_.schedule_s += watch.Lap();
  transformer_.Forward(batch, store_);
  stats_.forward_s += watch.Lap();
  Sample(plan, watch);
  scheduler_.Commit(outputs_);
  eviction_.Evict(scheduler_);
  if constexpr (QUIRE_DEAR_CHECKS) scheduler_.CheckInvariants();
  Emit(sink);
  stats_.emit_s += watch.Lap();
  ++stats_.steps;
  return true;
}

// Schedule drops them.
void Engine::ForgetFinished() {
  for (const RequestId id : scheduler_.finished()) {
    grammars_[id.value].reset();
    stop_strings_[id.value].reset();
    for (const SequenceId sequence : scheduler_.request(id).sequences) {
      if (static_cast<size_t>(sequence.value) < records_.size()) records_[sequence.value].reset();
      eviction_.Forget(sequence);
    }
  }
}

const sched::StepPlan& Engine::Plan() {
  ForgetFinished();
  PrepareMasks();
  const sched::StepPlan& plan = scheduler_.Schedule(without_mask_);
  // Those that are ready may lack memory that others hold.
  if (plan.empty() && !without_mask_.empty()) return scheduler_.Schedule();
  return plan;
}

// Computes which tokens may come for the running sequences with a grammar, as many as there is time
// for, each sequence being first once; the others sit this step out. What a sequence says does not
// depend on when it says it.
void Engine::PrepareMasks() {
  without_mask_.clear();
  for (const SequenceId id : scheduler_.running()) {
    const sched::Sequence& sequence = scheduler_.sequence(id);
    if (!grammars_[sequence.request.value]) continue;
    if (sequence.output_tokens() == 0) continue;  // its record is made with its first token
    if (!records_[id.value]->grammar->PrepareAllowed(0)) without_mask_.push_back(id);
  }
  if (without_mask_.empty()) return;
  const auto turn = static_cast<ptrdiff_t>(masks_first_++ % without_mask_.size());
  std::rotate(without_mask_.begin(), without_mask_.begin() + turn, without_mask_.end());
  const double deadline = base::MonotonicSeconds() + mask_budget_s_;
  team_.ParallelFor(static_cast<int64_t>(without_mask_.size()), 1,
                    [&](int64_t begin, int64_t end, int /*thread*/) {
                      for (int64_t i = begin; i < end; ++i) {
                        const double latest = i > 0 ? deadline : kNoDeadline;
                        records_[without_mask_[i].value]->grammar->PrepareAllowed(latest);
                      }
                    });
  std::erase_if(without_mask_,
                [&](SequenceId id) { return records_[id.value]->grammar->PrepareAllowed(0); });
}

void Engine::CopyFrames(std::span<const kv::PendingCopy> copies) {
  for (const kv::PendingCopy& copy : copies) {
    store_.Execute(copy);
  }
}

// Logits, the last layer, count as the forward pass.
void Engine::Sample(const sched::StepPlan& plan, base::Stopwatch& watch) {
  PrepareDraws(plan);
  stats_.sample_s += watch.Lap();
  const std::span<const LogitRow> rows = builder_.logit_rows();
  const int count = static_cast<int>(rows.size());
  size_t next_draw = 0;
  for (int first = 0; first < count; first += kLogitRows) {
    const int slice = std::min(kLogitRows, count - first);
    const MatrixView<const float> logits = transformer_.Logits(first, slice);
    stats_.forward_s += watch.Lap();
    const size_t first_draw = next_draw;
    while (next_draw < draws_.size() && draws_[next_draw].logit_row < first + slice) ++next_draw;
    team_.ParallelFor(static_cast<int64_t>(next_draw - first_draw), 1,
                      [&](int64_t begin, int64_t end, int thread) {
                        for (int64_t i = begin; i < end; ++i) {
                          Draw& draw = draws_[first_draw + i];
                          DrawOne(samplers_[thread], logits.row(draw.logit_row - first), draw);
                        }
                      });
    stats_.sample_s += watch.Lap();
  }
  CollectOutputs();
  stats_.sample_s += watch.Lap();
}

void Engine::PrepareDraws(const sched::StepPlan& plan) {
  draws_.clear();
  const std::span<const LogitRow> rows = builder_.logit_rows();
  for (size_t row = 0; row < rows.size(); ++row) {
    const sched::ScheduledSequence& run = plan.sequences[rows[row].run];
    const sched::Sequence& computed = scheduler_.sequence(run.sequence);
    const sched::Request& request = scheduler_.request(computed.request).request;
    if (request.sampling.prompt_logprobs && rows[row].position + 1 < computed.prompt_tokens) {
      draws_.push_back({.logit_row = static_cast<int>(row),
                        .kind = DrawKind::kPromptLogprob,
                        .sequence = run.sequence,
                        .position = rows[row].position + 1});
    }
    if (!rows[row].last) continue;
    for (const SequenceId id : plan.samplers_of(run)) {
      if (!request.beam_search) PrepareRecord(id, rows[row].position + 1);
      draws_.push_back({.logit_row = static_cast<int>(row),
                        .kind = request.beam_search ? DrawKind::kBeam : DrawKind::kToken,
                        .sequence = id,
                        .position = rows[row].position + 1});
    }
  }
}

void Engine::DrawOne(Sampler& sampler, const float* logits, Draw& draw) const {
  const sched::Sequence& sequence = scheduler_.sequence(draw.sequence);
  const sched::Request& request = scheduler_.request(sequence.request).request;
  const std::span<const float> row(logits, model_.config().vocab_size);
  switch (draw.kind) {
    case DrawKind::kPromptLogprob:
      draw.result =
          sampler.Score(row, sequence.tokens[draw.position], *request.sampling.prompt_logprobs);
      return;
    case DrawKind::kBeam: {
      // Twice the width, so that `width` beams remain even if as many candidates end the text.
      auto top = sampler.TopLogprobs(row, 2 * request.sequences());
      if (!top.ok()) {
        draw.result = std::move(top).error();
        return;
      }
      draw.result = SampledToken{};
      draw.result->top = std::move(top).value();
      return;
    }
    case DrawKind::kToken: {
      SequenceRecord& record = *records_[draw.sequence.value];
      std::span<const uint32_t> mask;
      if (record.grammar) mask = record.grammar->Allowed().words;
      // A sequence that is still to be forked has no tokens of its own yet.
      const TokenFilter::Limits limits = record.filter.Next(sequence.output(), mask);
      draw.result =
          sampler.Sample({.logits = row,
                          .params = &request.sampling,
                          .counts = record.counts ? &*record.counts : nullptr,
                          // As in vLLM: sequence i of n is what seed + i alone gives.
                          .key = {request.sampling.seed + sequence.index, 0, draw.position},
                          .banned = limits.banned,
                          .allowed = limits.allowed});
      return;
    }
  }
}

void Engine::CollectOutputs() {
  outputs_.clear();
  for (Draw& draw : draws_) {
    if (draw.kind == DrawKind::kPromptLogprob) continue;
    if (!draw.result.ok()) {
      const Error& error = draw.result.error();
      const auto level =
          error.kind == ErrorKind::kContradiction ? spdlog::level::debug : spdlog::level::err;
      spdlog::log(level, "sequence {} ends: {}", draw.sequence, error.message);
      scheduler_.Finish(draw.sequence, sched::FinishReason::kError);
      continue;
    }
    const SampledToken& sampled = *draw.result;
    if (draw.kind == DrawKind::kBeam) {
      outputs_.push_back({.sequence = draw.sequence, .tokens = {}, .candidates = sampled.top});
    } else {
      outputs_.push_back(
          {.sequence = draw.sequence, .tokens = {&sampled.token, 1}, .candidates = {}});
    }
  }
}

void Engine::Emit(const UpdateSink& sink) {
  for (Draw& draw : draws_) {
    const sched::Sequence& sequence = scheduler_.sequence(draw.sequence);
    SequenceUpdate update;
    update.request = sequence.request;
    update.index = sequence.index;
    switch (draw.kind) {
      case DrawKind::kBeam:
        continue;  // a request's beams are told when it has finished
      case DrawKind::kPromptLogprob:
        AddPromptLogprob(draw, update);
        break;
      case DrawKind::kToken:
        AddToken(draw, sequence, update);
        break;
    }
    sink(update);
  }
  for (const RequestId id : scheduler_.finished()) {
    const sched::RequestState& request = scheduler_.request(id);
    if (request.cancelled) continue;
    if (request.request.sampling.max_tokens == 0) {
      EmitScored(request, sink);
    } else if (request.beams != nullptr) {
      EmitBeams(request, sink);
    }
  }
}

// A request that draws nothing ends with its prompt.
void Engine::EmitScored(const sched::RequestState& request, const UpdateSink& sink) const {
  const sched::Sequence& first = scheduler_.sequence(request.sequences.front());
  const int told = request.request.beam_search ? request.request.n : request.request.sequences();
  for (int index = 0; index < told; ++index) {
    SequenceUpdate update;
    update.request = request.id;
    update.index = index;
    update.finish = sched::FinishReason::kLength;
    update.usage = {first.prompt_tokens, first.cached_tokens, 0, {}};
    sink(update);
  }
}

void Engine::AddPromptLogprob(Draw& draw, SequenceUpdate& update) const {
  if (draw.position == 1) update.prompt_logprobs.emplace_back(std::nullopt);
  if (draw.result.ok()) update.prompt_logprobs.push_back(ToLogprobs(*draw.result));
}

void Engine::AddToken(Draw& draw, const sched::Sequence& sequence, SequenceUpdate& update) {
  SequenceRecord& record = *records_[draw.sequence.value];
  const sched::SamplingParams& sampling = scheduler_.request(sequence.request).request.sampling;
  std::optional<sched::FinishReason> finish = sequence.finish_reason;
  if (draw.result.ok() && finish != sched::FinishReason::kCancelled) {
    const TokenId token = draw.result->token;
    std::optional<TokenLogprobs> logprobs;
    if (draw.result->logprob) logprobs = ToLogprobs(*draw.result);
    if (record.counts) record.counts->Append(token);
    const bool ends_silently =
        finish == sched::FinishReason::kStop && !sampling.include_stop_in_output;
    if (finish == sched::FinishReason::kStop) update.stop_reason = StopReasonOf(token);
    if (ends_silently) {
      record.text.AppendSilently(token, std::move(logprobs));
    } else {
      record.text.Append(token, std::move(logprobs), update);
    }
    if (const std::optional<int> stop = record.text.stopped_at()) {
      scheduler_.Finish(draw.sequence, sched::FinishReason::kStop);
      finish = sched::FinishReason::kStop;
      update.stop_reason = sampling.stop[*stop];
    }
    if (record.grammar && finish != sched::FinishReason::kStop) {
      if (const auto end = EndByGrammar(*record.grammar, token)) {
        scheduler_.Finish(draw.sequence, *end);
        finish = end;
      }
    }
  }
  if (!finish) return;
  if (!draw.result.ok()) {
    update.error = draw.result.error();
  } else if (finish == sched::FinishReason::kError) {
    update.error = Error{ErrorKind::kInvalid, "a token came that the constraint forbids"};
  }
  record.text.Finish(update);
  update.finish = finish;
  update.usage = {sequence.prompt_tokens, sequence.cached_tokens, sequence.output_tokens(), {}};
  if (sequence.eviction) {
    // The last token's own was never computed.
    update.usage.kv_tokens_kept = static_cast<int>(sequence.tokens.size()) - 1 - sequence.evicted;
  }
}

void Engine::EmitBeams(const sched::RequestState& request, const UpdateSink& sink) const {
  const sched::Sequence& first = scheduler_.sequence(request.sequences.front());
  const text::DecodeOptions decode = DecodeOptionsOf(request.request);
  const auto hypotheses = request.beams->hypotheses();
  for (int index = 0; index < request.request.n; ++index) {
    SequenceUpdate update;
    update.request = request.id;
    update.index = index;
    if (index >= static_cast<int>(hypotheses.size())) {
      // Everything else that could have been said was forbidden.
      update.finish = sched::FinishReason::kError;
      update.error =
          Error{ErrorKind::kContradiction, "there are fewer continuations than 'n'", "n"};
      sink(update);
      continue;
    }
    update.tokens = hypotheses[index].tokens;
    update.text = model_.tokenizer().Decode(update.tokens, decode);
    update.finish = hypotheses[index].reason;
    update.usage = {
        first.prompt_tokens, first.cached_tokens, static_cast<int>(update.tokens.size()), {}};
    sink(update);
  }
}

TokenLogprobs Engine::ToLogprobs(const SampledToken& sampled) {
  TokenLogprobs logprobs{sampled.token, *sampled.logprob, {}};
  for (const sched::TokenLogprob& entry : sampled.top) {
    logprobs.top.emplace_back(entry.token, entry.logprob);
  }
  return logprobs;
}

StopReason Engine::StopReasonOf(TokenId token) const {
  const std::vector<TokenId>& eos = model_.config().eos_ids;
  if (std::find(eos.begin(), eos.end(), token) != eos.end()) return std::monostate{};
  return token;
}

text::DecodeOptions Engine::DecodeOptionsOf(const sched::Request& request) const {
  return {.skip_special = request.sampling.skip_special_tokens,
          .start = model_.tokenizer().StartAfter(request.prompt),
          .shown_special = request.sampling.shown_special_tokens};
}

// `position`: of the token about to be drawn. A sibling that shares the prompt's computation has no
// tokens of its own before its first draw.
void Engine::PrepareRecord(SequenceId id, int position) {
  if (records_.size() <= static_cast<size_t>(id.value)) records_.resize(id.value + 1);
  std::unique_ptr<SequenceRecord>& record = records_[id.value];
  const sched::Sequence& sequence = scheduler_.sequence(id);
  // Ids are used again: a sequence's first token starts a new record.
  if (position > sequence.prompt_tokens) return;
  const sched::Request& request = scheduler_.request(sequence.request).request;
  const sched::SamplingParams& sampling = request.sampling;
  record = std::make_unique<SequenceRecord>(SequenceRecord{
      SequenceText(model_.tokenizer(),
                   {.decode = DecodeOptionsOf(request),
                    .stop_strings = *stop_strings_[sequence.request.value],
                    .stop_text = sampling.include_stop_in_output ? text::StopText::kInclude
                                                                 : text::StopText::kExclude,
                    .min_tokens = sampling.min_tokens}),
      std::nullopt, std::nullopt,
      TokenFilter(sampling, model_.config().eos_ids, model_.config().vocab_size)});
  if (NeedsCounts(sampling)) record->counts.emplace(request.prompt);
  if (auto& grammar = grammars_[sequence.request.value]) {
    grammar->Allowed();  // once for all sequences of the request
    record->grammar = grammar;
  }
}

}  // namespace quire::engine
