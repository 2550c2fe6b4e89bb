#include "text/grammar_matcher.h"

#include <algorithm>

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

const TokenMask& GrammarMatcher::Allowed() {
  if (ended_) {
    own_mask_ = masks_->vocabulary_->EmptyMask();
    return own_mask_;
  }
  const TokenMask* mask = nullptr;
  {
    const std::lock_guard lock(masks_->mutex_);
    UseCurrentTable();
    mask = &states_->Mask(at_);
  }
  const bool may_end = can_end();
  if (std::ranges::all_of(*end_tokens_, [&](TokenId t) { return mask->Test(t) == may_end; })) {
    return *mask;
  }
  own_mask_ = *mask;
  for (const TokenId token : *end_tokens_) may_end ? own_mask_.Set(token) : own_mask_.Clear(token);
  return own_mask_;
}

bool GrammarMatcher::Accept(TokenId token) {
  if (ended_) return false;
  if (std::ranges::find(*end_tokens_, token) != end_tokens_->end()) {
    if (!can_end()) return false;
    ended_ = true;
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
  return true;
}

}  // namespace quire::text
