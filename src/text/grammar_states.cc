#include "text/grammar_states.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/rng.h"

namespace quire::text {
namespace {

// Places looked at for one mask: some for every node of the vocabulary's trie. Only a hopelessly
// ambiguous grammar needs more: from there on the mask has tokens of one byte alone.
constexpr size_t kMaskWorkPerNode = 8;
constexpr size_t kMaskWorkLeast = 100'000;
// What is assumed of the depth of a stack that is not known.
constexpr uint32_t kUnknownDepth = Grammar::kNestingMax / 2;

// What computing where `at` leads may have cost, in time and in memory; a function of the
// configuration alone, so that a mask does not depend on what was computed before.
size_t WorkOf(const GrammarStates::Configuration& at) {
  const size_t count = at.items.size();
  return 1 + count + count * count / 16 + at.next.size() / 16;
}

uint64_t Combine(uint64_t hash, uint64_t value) {
  return base::Mix64(hash ^ value);
}

}  // namespace

uint64_t GrammarStates::IdOf(const FrameKey& key) {
  const uint64_t parent = key.parent == nullptr ? 1 : key.parent->id;
  return Combine(Combine(parent, key.call), uint64_t{key.min_left} << 32 | key.max_left);
}

size_t GrammarStates::FrameHash::operator()(const FrameKey& key) const {
  const uint64_t hash = Combine(reinterpret_cast<uintptr_t>(key.parent), key.call);
  return Combine(hash, uint64_t{key.min_left} << 32 | key.max_left);
}

size_t GrammarStates::ItemHash::operator()(const Item& item) const {
  return Combine(reinterpret_cast<uintptr_t>(item.frame), item.state);
}

GrammarStates::GrammarStates(GrammarPtr grammar,
                             std::shared_ptr<const GrammarVocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      far_(vocabulary_->longest_token() + 2),
      mask_work_max_(kMaskWorkLeast + kMaskWorkPerNode * vocabulary_->size()) {
  unknown_.depth = kUnknownDepth;
}

GrammarStates::Configuration* GrammarStates::Start() {
  const Grammar::Rule& root = grammar_->rule(grammar_->root());
  draft_.may_end = grammar_->accepts_empty();
  Visit({root.start, nullptr});
  return TakeVisited();
}

GrammarStates::Configuration* GrammarStates::Next(Configuration* from, uint8_t byte) {
  const uint8_t byte_class = grammar_->byte_class(byte);
  Configuration* next = from->next[byte_class];
  if (next == nullptr) {
    for (const Item& item : from->items) {
      for (const Grammar::ByteEdge& edge : grammar_->bytes(item.state)) {
        if (edge.low <= byte && byte <= edge.high) Visit({edge.target, item.frame});
      }
    }
    next = TakeVisited();
    if (next == nullptr) next = &dead_;
    from->next[byte_class] = next;
  }
  return next == &dead_ ? nullptr : next;
}

// Depth first, so that what is visited before the limit of alternatives is followed to its bytes.
void GrammarStates::Visit(Item start) {
  open_.push_back(start);
  while (!open_.empty()) {
    const Item item = open_.back();
    open_.pop_back();
    const uint32_t depth = item.frame == nullptr ? 0 : item.frame->depth;
    if (depth + grammar_->state(item.state).nesting > Grammar::kNestingMax) continue;
    if (visited_.size() >= kAlternativesMax) continue;
    if (!AddVisited(item)) continue;
    if (!grammar_->bytes(item.state).empty()) draft_.items.push_back(item);
    VisitCalls(item);
    if (!grammar_->state(item.state).accepts) continue;
    if (item.frame == nullptr) {
      draft_.may_end = true;
    } else if (item.frame == &unknown_) {
      draft_.escapes = true;
    } else {
      Return(*item.frame);
    }
  }
}

// False if it has been visited already.
bool GrammarStates::AddVisited(Item item) {
  constexpr size_t kMany = 32;
  if (visited_.size() < kMany) {
    if (std::ranges::find(visited_, item) != visited_.end()) return false;
  } else {
    if (many_visited_.empty()) many_visited_.insert(visited_.begin(), visited_.end());
    if (!many_visited_.insert(item).second) return false;
  }
  visited_.push_back(item);
  return true;
}

void GrammarStates::VisitCalls(Item item) {
  const uint32_t depth = item.frame == nullptr ? 0 : item.frame->depth;
  for (const Grammar::CallEdge& call : grammar_->calls(item.state)) {
    const Grammar::Rule& rule = grammar_->rule(call.rule);
    // What follows must not nest too deeply either, or the rule's end would be a dead end.
    const uint32_t needed = std::max(1u + rule.nesting, 0u + grammar_->state(call.target).nesting);
    if (depth + needed > Grammar::kNestingMax) continue;
    // The last call of a rule needs no frame: right recursion does not grow the stack.
    const bool is_last = call.max == 1 && grammar_->only_ends(call.target);
    open_.push_back({rule.start, is_last ? item.frame
                                         : InternFrame({item.frame, grammar_->call_index(call),
                                                        call.min, call.max})});
  }
}

// The rule that `frame` called has been read once more.
void GrammarStates::Return(const Frame& frame) {
  const Grammar::CallEdge& call = grammar_->call(frame.call);
  const uint32_t min_left = frame.min_left == 0 ? 0 : frame.min_left - 1;
  const uint32_t max_left =
      frame.max_left == Grammar::kUnbounded ? frame.max_left : frame.max_left - 1;
  if (min_left == 0) open_.push_back({call.target, frame.parent});
  if (max_left == 0) return;
  open_.push_back({grammar_->rule(call.rule).start,
                   InternFrame({frame.parent, frame.call, min_left, max_left})});
}

// nullptr if nothing was reached.
GrammarStates::Configuration* GrammarStates::TakeVisited() {
  visited_.clear();
  many_visited_.clear();
  Configuration draft = std::exchange(draft_, {});
  if (draft.items.empty() && !draft.may_end && !draft.escapes) return nullptr;
  return Intern(std::move(draft));
}

GrammarStates::Configuration* GrammarStates::Intern(Configuration&& draft) {
  std::ranges::sort(draft.items, {}, [](const Item& item) {
    return std::pair(item.state, item.frame == nullptr ? uint64_t{0} : item.frame->id);
  });
  uint64_t hash = (draft.may_end ? 1u : 0u) + (draft.escapes ? 2u : 0u);
  for (const Item& item : draft.items) {
    hash = Combine(Combine(hash, item.state), reinterpret_cast<uintptr_t>(item.frame));
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Configuration& known = *it->second;
    if (known.items == draft.items && known.may_end == draft.may_end &&
        known.escapes == draft.escapes) {
      return &known;
    }
  }
  draft.next.assign(static_cast<size_t>(grammar_->byte_class_count()), nullptr);
  bytes_ += sizeof(Configuration) + draft.items.size() * sizeof(Item) +
            draft.next.size() * sizeof(void*) + 64;
  Configuration* added = &configurations_.emplace_back(std::move(draft));
  index_.emplace(hash, added);
  return added;
}

const GrammarStates::Frame* GrammarStates::InternFrame(const FrameKey& key) {
  const auto [found, is_new] = frame_index_.try_emplace(key, nullptr);
  if (!is_new) return found->second;
  Frame frame{.parent = key.parent,
              .call = key.call,
              .min_left = key.min_left,
              .max_left = key.max_left,
              .depth = key.parent == nullptr ? 1 : key.parent->depth + 1,
              .id = IdOf(key)};
  frame.counts_far = (key.parent != nullptr && key.parent->counts_far) || key.min_left > far_ ||
                     (key.max_left != Grammar::kUnbounded && key.max_left > far_);
  frames_.push_back(frame);
  bytes_ += sizeof(Frame) + sizeof(FrameKey) + 64;
  found->second = &frames_.back();
  return found->second;
}

// The same stack with counts that are indistinguishable by one token made equal.
const GrammarStates::Frame* GrammarStates::Clamp(const Frame* frame) {
  if (frame == nullptr || !frame->counts_far) return frame;
  const bool bounded = frame->max_left != Grammar::kUnbounded;
  return InternFrame({Clamp(frame->parent), frame->call, std::min(frame->min_left, far_),
                      bounded ? std::min(frame->max_left, far_) : frame->max_left});
}

// `frame` with `to` in place of the stack from `from` down.
const GrammarStates::Frame* GrammarStates::Copy(const Frame* frame, const Frame* from,
                                                const Frame* to) {
  if (frame == from) return to;
  return InternFrame(
      {Copy(frame->parent, from, to), frame->call, frame->min_left, frame->max_left});
}

GrammarStates::Configuration* GrammarStates::Clamped(Configuration* at) {
  const bool counts_far = std::ranges::any_of(
      at->items, [](const Item& item) { return item.frame != nullptr && item.frame->counts_far; });
  if (!counts_far) return at;
  Configuration draft;
  draft.may_end = at->may_end;
  for (const Item& item : at->items) {
    const Item clamped{item.state, Clamp(item.frame)};
    if (std::ranges::find(draft.items, clamped) == draft.items.end()) {
      draft.items.push_back(clamped);
    }
  }
  return Intern(std::move(draft));
}

GrammarStates::Configuration* GrammarStates::Adopt(const Configuration& other) {
  Configuration draft;
  draft.may_end = other.may_end;
  for (const Item& item : other.items) {
    draft.items.push_back({item.state, Copy(item.frame, nullptr, nullptr)});
  }
  return Intern(std::move(draft));
}

// The topmost frame that all items' stacks have in common; nullptr where that is the root.
const GrammarStates::Frame* GrammarStates::CommonFrame(const Configuration& at) const {
  const auto parent = [](const Frame* frame) { return frame->parent; };
  const Frame* common = at.items.front().frame;
  for (const Item& item : at.items) {
    const Frame* frame = item.frame;
    while (common != frame) {
      if (common == nullptr || frame == nullptr) return nullptr;
      (common->depth >= frame->depth ? common : frame) =
          parent(common->depth >= frame->depth ? common : frame);
    }
  }
  return common;
}

const TokenMask& GrammarStates::Mask(Configuration* at) {
  if (at->mask) return *at->mask;
  Configuration* clamped = Clamped(at);
  if (!clamped->mask) {
    TokenMask mask = vocabulary_->EmptyMask();
    const Frame* base = clamped->items.empty() ? nullptr : CommonFrame(*clamped);
    Configuration* above = nullptr;
    if (base != nullptr && base->depth <= kUnknownDepth) above = MaskAbove(clamped, base);
    work_ = 0;
    if (above == nullptr || above->mask_is_open) {
      Mark(clamped, 0, mask, nullptr);
    } else {
      mask = *above->mask;
      for (const uint32_t node : above->open_nodes) {
        Configuration* there = clamped;
        for (const char byte : vocabulary_->BytesTo(node)) {
          if (there != nullptr) there = Next(there, static_cast<uint8_t>(byte));
        }
        if (there != nullptr) Mark(there, node, mask, nullptr);
      }
    }
    bytes_ += mask.words.size() * sizeof(uint32_t);
    clamped->mask = std::make_unique<TokenMask>(std::move(mask));
  }
  if (clamped != at) {
    bytes_ += clamped->mask->words.size() * sizeof(uint32_t);
    at->mask = std::make_unique<TokenMask>(*clamped->mask);
  }
  return *at->mask;
}

// What can be said of a mask without knowing the stack from `base` down, shared by all
// configurations that differ only there: a string's content allows most of the vocabulary, whatever
// the string is part of. `open_nodes`: where that was not enough, as what is below is reached.
// `mask_is_open`: that is so for most of the vocabulary.
GrammarStates::Configuration* GrammarStates::MaskAbove(Configuration* at, const Frame* base) {
  Configuration draft;
  for (const Item& item : at->items) {
    draft.items.push_back({item.state, Copy(item.frame, base, &unknown_)});
  }
  Configuration* above = Intern(std::move(draft));
  if (above->mask) return above;
  TokenMask mask = vocabulary_->EmptyMask();
  work_ = 0;
  Mark(above, 0, mask, &above->open_nodes);
  size_t open = 0;
  for (const uint32_t node : above->open_nodes) open += vocabulary_->nodes()[node].end - node;
  above->mask_is_open = open > vocabulary_->size() / 2;
  bytes_ += mask.words.size() * sizeof(uint32_t) + above->open_nodes.size() * sizeof(uint32_t);
  above->mask = std::make_unique<TokenMask>(std::move(mask));
  return above;
}

// The tokens of `node` and below it, where `from` is the configuration there.
void GrammarStates::Mark(Configuration* from, uint32_t node, TokenMask& mask,
                         std::vector<uint32_t>* open_nodes) {
  const std::vector<GrammarVocabulary::Node>& nodes = vocabulary_->nodes();
  const uint32_t top = nodes[node].depth;
  const uint32_t end = nodes[node].end;
  path_.assign(vocabulary_->longest_token() + 1 - std::min(top, vocabulary_->longest_token()),
               nullptr);
  path_[0] = from;
  MarkTokens(node, mask);
  for (++node; node < end;) {
    const GrammarVocabulary::Node& at = nodes[node];
    const uint32_t depth = at.depth - top;
    Configuration* next = nullptr;
    if (work_ <= mask_work_max_ || at.depth == 1) next = Next(path_[depth - 1], at.byte);
    if (next == nullptr) {
      node = at.end;
      continue;
    }
    if (next->escapes) {
      open_nodes->push_back(node);
      node = at.end;
      continue;
    }
    work_ += WorkOf(*next);
    path_[depth] = next;
    MarkTokens(node, mask);
    ++node;
  }
}

void GrammarStates::MarkTokens(uint32_t node, TokenMask& mask) const {
  const std::vector<GrammarVocabulary::Node>& nodes = vocabulary_->nodes();
  for (uint32_t i = nodes[node].tokens_begin; i < nodes[node + 1].tokens_begin; ++i) {
    mask.Set(vocabulary_->tokens()[i]);
  }
}

}  // namespace quire::text
