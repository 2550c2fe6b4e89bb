#include "text/grammar_matcher.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace quire::text {

GrammarMasks::GrammarMasks(GrammarPtr grammar, std::shared_ptr<const GrammarVocabulary> vocabulary,
                           size_t bytes_max)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), bytes_max_(bytes_max) {}

const std::shared_ptr<GrammarStates>& GrammarMasks::Current() {
  if (!states_ || states_->bytes() > bytes_max_) {
    states_ = std::make_shared<GrammarStates>(grammar_, vocabulary_);
  }
  return states_;
}

void GrammarMasks::PrepareStart() {
  const std::lock_guard lock(mutex_);
  if (start_mask_) return;
  const std::shared_ptr<GrammarStates> states = Current();
  start_mask_ = std::make_shared<TokenMask>(states->Mask(states->Start()));
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<GrammarMasks> masks, std::vector<TokenId> end_tokens)
    : masks_(std::move(masks)) {
  std::erase_if(end_tokens, [&](TokenId token) { return !masks_->vocabulary_->Contains(token); });
  end_tokens_ = std::make_shared<const std::vector<TokenId>>(std::move(end_tokens));
  const std::lock_guard lock(masks_->mutex_);
  states_ = masks_->Current();
  at_ = states_->Start();
}

void GrammarMatcher::UseCurrentTable() {
  const std::shared_ptr<GrammarStates>& current = masks_->Current();
  if (current == states_) return;
  at_ = current->Adopt(*at_);
  states_ = current;
}

// A table that has grown beyond its bound must not live for as long as this matcher waits: it keeps
// a table of its own place alone.
void GrammarMatcher::LeaveTable() {
  auto own = std::make_shared<GrammarStates>(masks_->grammar_, masks_->vocabulary_);
  at_ = own->Adopt(*at_);
  states_ = std::move(own);
}

bool GrammarMatcher::PrepareAllowed(double deadline) {
  if (allowed_) return true;
  const std::lock_guard lock(masks_->mutex_);
  if (!ended_) {
    UseCurrentTable();
    const bool is_known = at_->mask != nullptr || (at_start_ && masks_->start_mask_ != nullptr);
    if (!is_known && base::MonotonicSeconds() > deadline) return false;
  }
  MakeMask();
  return true;
}

const TokenMask& GrammarMatcher::Allowed() {
  PrepareAllowed(std::numeric_limits<double>::infinity());
  return *allowed_;
}

void GrammarMatcher::MakeMask() {
  if (ended_) {
    allowed_ = std::make_shared<TokenMask>(masks_->vocabulary_->EmptyMask());
    return;
  }
  const bool is_start = at_start_ && masks_->start_mask_ != nullptr;
  const TokenMask& mask = is_start ? *masks_->start_mask_ : states_->Mask(at_);
  const bool may_end = can_end();
  const bool table_is_full = states_->bytes() > masks_->bytes_max_;
  if (!table_is_full && !is_start &&
      std::ranges::all_of(*end_tokens_, [&](TokenId t) { return mask.Test(t) == may_end; })) {
    allowed_ = {states_, &mask};
    return;
  }
  auto own = std::make_shared<TokenMask>(mask);
  for (const TokenId token : *end_tokens_) may_end ? own->Set(token) : own->Clear(token);
  if (table_is_full) LeaveTable();
  allowed_ = std::move(own);
}

bool GrammarMatcher::Accept(TokenId token) {
  if (ended_) return false;
  if (std::ranges::find(*end_tokens_, token) != end_tokens_->end()) {
    if (!can_end()) return false;
    ended_ = true;
    allowed_ = nullptr;
    return true;
  }
  const std::string_view bytes = masks_->vocabulary_->bytes(token);
  return !bytes.empty() && AcceptBytes(bytes);
}

bool GrammarMatcher::AcceptBytes(std::string_view bytes) {
  if (ended_) return false;
  const std::lock_guard lock(masks_->mutex_);
  UseCurrentTable();
  GrammarStates::Configuration* at = at_;
  for (const char byte : bytes) {
    at = states_->Next(at, static_cast<uint8_t>(byte));
    if (at == nullptr) return false;
  }
  at_ = at;
  at_start_ = at_start_ && bytes.empty();
  allowed_ = nullptr;
  return true;
}

}  // namespace quire::text
