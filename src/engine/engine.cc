#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "engine/model_drafter.h"

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

// Memory for as many tokens as the target has, if so many can run together.
Result<std::unique_ptr<Drafter>> MakeModelDrafter(const Engine& engine,
                                                  const EngineOptions& options,
                                                  base::ThreadTeam& team) {
  const kvstore::KvLayout& layout = engine.store().layout();
  const int64_t tokens = int64_t{engine.store().frames_total()} * layout.block_size();
  return ModelDrafter::Create(
      engine.model(), *options.speculation.draft_model,
      {.max_num_seqs = options.max_num_seqs,
       .rows = options.max_num_batched_tokens,
       .max_model_len = engine.max_model_len(),
       .kv_tokens = std::min(tokens, int64_t{options.max_num_seqs} * engine.max_model_len()),
       .prefix_caching = engine.scheduler().cache().options().prefix_caching,
       .choice = options.speculation.draft_choice},
      team);
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
  auto engine = std::make_unique<Engine>(Parts{model, team, std::move(store), control.scheduler,
                                               control.cache, options.seed, options.eviction,
                                               options.mask_budget_s, options.speculation});
  if (options.speculation.draft_model != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(auto drafter, MakeModelDrafter(*engine, options, team));
    engine->AddDrafter(std::move(drafter));
  }
  return engine;
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
      mask_budget_s_(parts.mask_budget_s),
      speculator_(parts.speculation) {}

Status Engine::CheckTokens(std::span<const TokenId> tokens) const {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < model_.config().vocab_size) continue;
    return Error{ErrorKind::kUsage,
                 fmt::format("token id {} is outside the model's vocabulary of {}", token,
                             model_.config().vocab_size),
                 "prompt"};
  }
  return Ok{};
}

Status Engine::CheckForced(const sched::Request& request) const {
  QUIRE_RETURN_IF_ERROR(CheckTokens(request.forced_output));
  const auto most = static_cast<size_t>(std::max(0, request.sampling.max_tokens));
  if (most <= request.forced_output.size() && !request.beam_search) return Ok{};
  return MakeError(ErrorKind::kUsage,
                   "{} output tokens are asked for and {} given; at least as many, and no beam "
                   "search, are needed",
                   most, request.forced_output.size());
}

Result<RequestId> Engine::Submit(sched::Request request) {
  QUIRE_RETURN_IF_ERROR(ValidateSampling(request.sampling, model_.config().vocab_size));
  QUIRE_RETURN_IF_ERROR(CheckTokens(request.prompt));
  if (!request.forced_output.empty()) QUIRE_RETURN_IF_ERROR(CheckForced(request));
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
  base::Stopwatch computing;
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
  if (speculator_.active()) speculator_.ObserveStep(plan.tokens(), computing.Lap());
  return true;
}

// Schedule drops them.
void Engine::ForgetFinished() {
  for (const RequestId id : scheduler_.finished()) {
    grammars_[id.value].reset();
    stop_strings_[id.value].reset();
    const sched::RequestState& request = scheduler_.request(id);
    for (const SequenceId sequence : request.sequences) {
      if (static_cast<size_t>(sequence.value) < records_.size()) records_[sequence.value].reset();
      eviction_.Forget(sequence);
      speculator_.Forget(scheduler_.sequence(sequence), request.request);
    }
  }
}

const sched::StepPlan& Engine::Plan() {
  ForgetFinished();
  PrepareMasks();
  if (speculator_.active()) ProposeDrafts();
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

void Engine::ProposeDrafts() {
  const auto sits_out = [&](SequenceId id) {
    return std::ranges::find(without_mask_, id) != without_mask_.end();
  };
  speculator_.Propose(scheduler_, sits_out, [&](SequenceId id, std::vector<TokenId>& drafts) {
    TrimToGrammar(id, drafts);
  });
}

// A draft that the constraint forbids is never drawn: neither it nor what follows need computing.
void Engine::TrimToGrammar(SequenceId id, std::vector<TokenId>& drafts) const {
  const SequenceRecord& record = *records_[id.value];
  if (!record.grammar) return;
  text::GrammarMatcher ahead = *record.grammar;
  size_t possible = 0;
  while (possible < drafts.size() && ahead.Accept(drafts[possible])) ++possible;
  drafts.resize(possible);
}

void Engine::CopyFrames(std::span<const kv::PendingCopy> copies) {
  for (const kv::PendingCopy& copy : copies) {
    store_.Execute(copy);
  }
}

// Logits, the last layer, count as the forward pass.
void Engine::Sample(const sched::StepPlan& plan, base::Stopwatch& watch) {
  PrepareDraws(plan);
  mask_deadline_s_ = base::MonotonicSeconds() + mask_budget_s_;
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
    DrawRows(logits, first, first_draw, next_draw);
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
    if (!rows[row].last && !rows[row].draft) continue;
    for (const SequenceId id : plan.samplers_of(run)) {
      if (!request.beam_search) PrepareRecord(id, rows[row].position + 1);
      draws_.push_back({.logit_row = static_cast<int>(row),
                        .kind = request.beam_search ? DrawKind::kBeam : DrawKind::kToken,
                        .sequence = id,
                        .position = rows[row].position + 1,
                        .continues = rows[row].position >= static_cast<int>(computed.tokens.size()),
                        .draft = rows[row].draft});
    }
  }
}

// Draws [begin, end) are of the rows in `logits`, the first of which is `first_row`. The rest of a
// sequence's draws may follow with the next rows.
void Engine::DrawRows(const MatrixView<const float>& logits, int first_row, size_t begin,
                      size_t end) {
  draw_units_.clear();
  for (size_t i = begin; i < end; ++i) {
    if (draws_[i].continues && i > begin) {
      draw_units_.back().second = i + 1;
    } else {
      draw_units_.emplace_back(i, i + 1);
    }
  }
  team_.ParallelFor(
      static_cast<int64_t>(draw_units_.size()), 1,
      [&](int64_t unit, int64_t last_unit, int thread) {
        for (; unit < last_unit; ++unit) {
          for (size_t i = draw_units_[unit].first; i < draw_units_[unit].second; ++i) {
            if (draws_[i].continues && !draws_[i - 1].goes_on) break;
            DrawOne(samplers_[thread], logits.row(draws_[i].logit_row - first_row), draws_[i]);
          }
        }
      });
}

void Engine::DrawOne(Sampler& sampler, const float* logits, Draw& draw) {
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
    case DrawKind::kToken:
      DrawToken(sampler, row, draw);
      return;
  }
}

// The token is a function of the logits, the request and the position: whether it was guessed only
// decides if the next one can be drawn in the same step. What cannot be drawn in passing (the mask
// takes too long, or no token may come) waits for the step in which it is first.
void Engine::DrawToken(Sampler& sampler, std::span<const float> logits, Draw& draw) {
  const sched::Sequence& sequence = scheduler_.sequence(draw.sequence);
  const sched::Request& request = scheduler_.request(sequence.request).request;
  SequenceRecord& record = *records_[draw.sequence.value];
  std::span<const uint32_t> mask;
  if (record.grammar) {
    if (draw.continues && !record.grammar->PrepareAllowed(mask_deadline_s_)) return;
    mask = record.grammar->Allowed().words;
  }
  const TokenFilter::Limits limits = record.filter.Next(record.output, mask);
  if (request.forced_output.empty()) {
    draw.result = sampler.Sample({.logits = logits,
                                  .params = &request.sampling,
                                  .counts = record.counts ? &*record.counts : nullptr,
                                  // As in vLLM: sequence i of n is what seed + i alone gives.
                                  .key = {request.sampling.seed + sequence.index, 0, draw.position},
                                  .banned = limits.banned,
                                  .allowed = limits.allowed});
  } else {
    const TokenId token = request.forced_output[draw.position - sequence.prompt_tokens];
    draw.result = sampler.Score(logits, token, request.sampling.logprobs.value_or(0));
  }
  if (!draw.result.ok()) {
    draw.drawn = !draw.continues;
    return;
  }
  draw.drawn = true;
  const TokenId token = draw.result->token;
  record.output.push_back(token);
  if (record.counts) record.counts->Append(token);
  if (record.grammar) draw.grammar_end = EndByGrammar(*record.grammar, token);
  const int output_tokens = draw.position + 1 - sequence.prompt_tokens;
  draw.goes_on = draw.draft == token && !draw.grammar_end &&
                 !scheduler_.EndWith(request, token, output_tokens);
}

// draws_[first] and those that continue it and were drawn.
std::span<Engine::Draw> Engine::DrawnTogether(size_t first) {
  size_t end = first + 1;
  while (end < draws_.size() && draws_[end].continues && draws_[end].drawn) ++end;
  return std::span(draws_).subspan(first, end - first);
}

void Engine::ObserveDrafts(size_t first) {
  int drafted = 0;
  int accepted = 0;
  for (size_t i = first; i < draws_.size() && draws_[i].draft; ++i) {
    if (i > first && !draws_[i].continues) break;
    // Not drawn although all before it were right (the mask took too long): that says nothing.
    if (i > first && !draws_[i].drawn && draws_[i - 1].goes_on) break;
    ++drafted;
    accepted += draws_[i].drawn && draws_[i].result->token == *draws_[i].draft;
  }
  const SequenceId id = draws_[first].sequence;
  speculator_.Observe(id, drafted, accepted);
  records_[id.value]->drafts_accepted += accepted;
  records_[id.value]->drafts_rejected += drafted - accepted;
}

void Engine::CollectOutputs() {
  outputs_.clear();
  drawn_tokens_.clear();
  drawn_tokens_.reserve(draws_.size());  // outputs_ views it
  for (size_t i = 0; i < draws_.size(); ++i) {
    const Draw& draw = draws_[i];
    if (draw.kind == DrawKind::kPromptLogprob || draw.continues) continue;
    if (!draw.result.ok()) {
      const Error& error = draw.result.error();
      const auto level =
          error.kind == ErrorKind::kContradiction ? spdlog::level::debug : spdlog::level::err;
      spdlog::log(level, "sequence {} ends: {}", draw.sequence, error.message);
      scheduler_.Finish(draw.sequence, sched::FinishReason::kError);
      continue;
    }
    if (draw.kind == DrawKind::kBeam) {
      outputs_.push_back({.sequence = draw.sequence, .tokens = {}, .candidates = draw.result->top});
      continue;
    }
    const std::span<Draw> drawn = DrawnTogether(i);
    for (const Draw& one : drawn) drawn_tokens_.push_back(one.result->token);
    if (draw.draft) ObserveDrafts(i);
    outputs_.push_back({.sequence = draw.sequence,
                        .tokens = std::span(drawn_tokens_).last(drawn.size()),
                        .candidates = {}});
  }
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
