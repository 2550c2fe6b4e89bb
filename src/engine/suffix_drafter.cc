#include "engine/suffix_drafter.h"

#include <algorithm>

namespace quire::engine {

SuffixDrafter::History* SuffixDrafter::Find(const sched::Request& request) {
  const Salt salt(request.cache_salt, request.adapter);
  const auto found = std::ranges::find(histories_, salt, &History::salt);
  if (found == histories_.end()) return nullptr;
  histories_.splice(histories_.begin(), histories_, found);
  return &histories_.front();
}

void SuffixDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) ProposeOne(*job);
}

void SuffixDrafter::ProposeOne(DraftJob& job) {
  const std::span<const TokenId> tokens = job.sequence->tokens;
  Own& own = own_[job.sequence->id.value];
  const int end = std::min(static_cast<int>(tokens.size()), own.tokens + kTokensPerStep);
  for (; own.tokens < end; ++own.tokens) own.automaton.Append(tokens[own.tokens]);
  if (end < static_cast<int>(tokens.size())) return;
  const SuffixAutomaton* best = &own.automaton;
  SuffixAutomaton::Match match = own.automaton.Repeated();
  if (History* history = sharing_ == OutputSharing::kOff ? nullptr : Find(*job.request)) {
    for (const SuffixAutomaton* automaton : {history->newer.get(), history->older.get()}) {
      if (automaton == nullptr) continue;
      SuffixAutomaton::Match found;
      const size_t ending = std::min<size_t>(tokens.size(), kMatchMax);
      for (const TokenId token : tokens.last(ending)) found = automaton->Advance(found, token);
      if (found.length <= match.length) continue;
      match = found;
      best = automaton;
    }
  }
  if (match.length == 0) return;
  best->Continue(match, std::min(job.drafts_max, kDraftsPerMatch * match.length), kShareLeast,
                 job.drafts);
}

void SuffixDrafter::Forget(const sched::Sequence& sequence, const sched::Request& request) {
  own_.erase(sequence.id.value);
  if (sharing_ == OutputSharing::kOff || sequence.output().empty()) return;
  History* history = Find(request);
  if (history == nullptr) {
    histories_.push_front({{request.cache_salt, request.adapter}, nullptr, nullptr});
    history = &histories_.front();
    if (histories_.size() > kSaltsMax) histories_.pop_back();
  }
  const auto output = sequence.output();
  const auto kept = output.last(std::min<size_t>(output.size(), kTokensPerGeneration));
  if (history->newer != nullptr &&
      history->newer->tokens() + static_cast<int>(kept.size()) > kTokensPerGeneration) {
    history->older = std::move(history->newer);
  }
  if (history->newer == nullptr) history->newer = std::make_unique<SuffixAutomaton>();
  history->newer->StartText();
  for (const TokenId token : kept) history->newer->Append(token);
}

size_t SuffixDrafter::bytes() const {
  size_t bytes = 0;
  for (const auto& [id, own] : own_) bytes += own.automaton.bytes();
  for (const History& history : histories_) {
    if (history.newer) bytes += history.newer->bytes();
    if (history.older) bytes += history.older->bytes();
  }
  return bytes;
}

}  // namespace quire::engine
