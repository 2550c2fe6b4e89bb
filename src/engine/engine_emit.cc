// Engine: what it tells of a step.
#include <algorithm>

#include "engine/engine.h"

namespace quire::engine {

void Engine::Emit(const UpdateSink& sink) {
  for (size_t i = 0; i < draws_.size(); ++i) {
    Draw& draw = draws_[i];
    if (draw.continues) continue;
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
        AddTokens(DrawnTogether(i), update);
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
    update.usage = {.prompt_tokens = first.prompt_tokens, .cached_tokens = first.cached_tokens};
    sink(update);
  }
}

void Engine::AddPromptLogprob(Draw& draw, SequenceUpdate& update) const {
  if (draw.position == 1) update.prompt_logprobs.emplace_back(std::nullopt);
  if (draw.result.ok()) update.prompt_logprobs.push_back(ToLogprobs(*draw.result));
}

// A stop string may end the sequence before its last token of the step: the rest is not told.
void Engine::AddTokens(std::span<Draw> draws, SequenceUpdate& update) {
  const sched::Sequence& sequence = scheduler_.sequence(draws.front().sequence);
  std::optional<sched::FinishReason> finish;
  int completion_tokens = 0;
  for (size_t i = 0; i < draws.size() && !finish; ++i) {
    // What Commit says is about the last of them.
    const bool is_last = i + 1 == draws.size();
    finish = sequence.finish_reason;
    if (!is_last && finish != sched::FinishReason::kCancelled) finish.reset();
    finish = AddToken(draws[i], finish, update);
    completion_tokens = draws[i].position - sequence.prompt_tokens + draws[i].result.ok();
  }
  if (!finish) return;
  if (finish == sched::FinishReason::kCancelled) completion_tokens = sequence.output_tokens();
  if (!draws.front().result.ok()) {
    update.error = draws.front().result.error();
  } else if (finish == sched::FinishReason::kError) {
    update.error = Error{ErrorKind::kInvalid, "a token came that the constraint forbids"};
  }
  records_[sequence.id.value]->text.Finish(update);
  update.finish = finish;
  const SequenceRecord& record = *records_[sequence.id.value];
  update.usage = {sequence.prompt_tokens, sequence.cached_tokens, completion_tokens,
                  record.drafts_accepted, record.drafts_rejected};
  if (sequence.eviction) {
    // The last token's own was never computed.
    update.usage.kv_tokens_kept = static_cast<int>(sequence.tokens.size()) - 1 - sequence.evicted;
  }
}

// How the sequence ends with this token, if it does; `finish`: what the scheduler says.
std::optional<sched::FinishReason> Engine::AddToken(Draw& draw,
                                                    std::optional<sched::FinishReason> finish,
                                                    SequenceUpdate& update) {
  if (!draw.result.ok() || finish == sched::FinishReason::kCancelled) return finish;
  SequenceRecord& record = *records_[draw.sequence.value];
  const sched::Sequence& sequence = scheduler_.sequence(draw.sequence);
  const sched::SamplingParams& sampling = scheduler_.request(sequence.request).request.sampling;
  const TokenId token = draw.result->token;
  std::optional<TokenLogprobs> logprobs;
  if (draw.result->logprob) logprobs = ToLogprobs(*draw.result);
  const bool stops = finish == sched::FinishReason::kStop;
  if (stops) update.stop_reason = StopReasonOf(token);
  if (stops && !sampling.include_stop_in_output) {
    record.text.AppendSilently(token, std::move(logprobs));
  } else {
    record.text.Append(token, std::move(logprobs), update);
  }
  if (const std::optional<int> stop = record.text.stopped_at()) {
    finish = sched::FinishReason::kStop;
    update.stop_reason = sampling.stop[*stop];
  } else if (draw.grammar_end && !stops) {
    finish = draw.grammar_end;
  }
  if (finish) scheduler_.Finish(draw.sequence, *finish);
  return finish;
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
    update.usage = {.prompt_tokens = first.prompt_tokens,
                    .cached_tokens = first.cached_tokens,
                    .completion_tokens = static_cast<int>(update.tokens.size())};
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

}  // namespace quire::engine
