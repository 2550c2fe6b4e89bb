// GrammarStates: where a text can be in a Grammar, as an automaton that is computed while it is
// used.
//
// A Configuration is everything that matters of the text so far: the set of places in rules, each
// with its stack of calls (frames). Equal ones are one object, and each remembers where a byte
// leads and which tokens may come, so that what happened before costs a lookup. Frames share their
// lower parts. Everything lives as long as the table; it only grows (bytes() says how far). One
// thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar.h"
#include "text/grammar_vocabulary.h"

namespace quire::text {

class GrammarStates {
 public:
  // Alternatives that are followed at a time. A text of a more ambiguous grammar may be refused,
  // never the other way around.
  static constexpr size_t kAlternativesMax = 1024;

  struct Frame {
    const Frame* parent = nullptr;  // nullptr: the root rule
    uint32_t call = 0;              // the edge that called
    uint32_t min_left = 1;          // times that the rule has to be read, this one included
    uint32_t max_left = 1;
    uint32_t depth = 1;
    uint64_t id = 0;          // a hash of all above, so that any table puts frames in one order
    bool counts_far = false;  // here or below, a count that no token can use up
  };
  struct Item {
    uint32_t state = 0;
    const Frame* frame = nullptr;
    bool operator==(const Item&) const = default;
  };
  struct Configuration {
    std::vector<Item> items;           // that can read a byte
    bool may_end = false;              // the text is complete
    bool escapes = false;              // some item has left what is known of the stack
    std::vector<Configuration*> next;  // by byte class; nullptr: not known yet
    std::unique_ptr<TokenMask> mask;
    std::vector<uint32_t> open_nodes;  // see MaskAbove
    bool mask_is_open = false;

    // No byte can follow.
    bool complete() const { return items.empty(); }
  };

  GrammarStates(GrammarPtr grammar, std::shared_ptr<const GrammarVocabulary> vocabulary);

  Configuration* Start();
  // Where `byte` leads; nullptr: nowhere.
  Configuration* Next(Configuration* from, uint8_t byte);
  // The tokens whose bytes can all follow.
  const TokenMask& Mask(Configuration* at);
  // The same configuration as one of another table of the same grammar.
  Configuration* Adopt(const Configuration& other);

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  size_t bytes() const { return bytes_; }

 private:
  struct FrameKey {
    const Frame* parent;
    uint32_t call;
    uint32_t min_left;
    uint32_t max_left;
    bool operator==(const FrameKey&) const = default;
  };
  struct FrameHash {
    size_t operator()(const FrameKey& key) const;
  };
  struct ItemHash {
    size_t operator()(const Item& item) const;
  };

  // The set under construction: what is reached without reading.
  void Visit(Item item);
  bool AddVisited(Item item);
  void VisitCalls(Item item);
  void Return(const Frame& frame);
  Configuration* TakeVisited();
  Configuration* Intern(Configuration&& draft);
  static uint64_t IdOf(const FrameKey& key);
  const Frame* InternFrame(const FrameKey& key);

  const Frame* Clamp(const Frame* frame);
  const Frame* Copy(const Frame* frame, const Frame* from, const Frame* to);
  Configuration* Clamped(Configuration* at);
  const Frame* CommonFrame(const Configuration& at) const;
  Configuration* MaskAbove(Configuration* at, const Frame* base);
  void Mark(Configuration* from, uint32_t node, TokenMask& mask, std::vector<uint32_t>* open_nodes);
  void MarkTokens(uint32_t node, TokenMask& mask) const;

  GrammarPtr grammar_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  uint32_t far_;  // a count that is at least so large cannot be used up by a token
  size_t mask_work_max_;
  Frame unknown_;  // stands for whatever lies below a configuration's common frame
  Configuration dead_;
  std::deque<Frame> frames_;
  std::deque<Configuration> configurations_;
  std::unordered_map<FrameKey, const Frame*, FrameHash> frame_index_;
  std::unordered_multimap<uint64_t, Configuration*> index_;
  size_t bytes_ = 0;

  std::vector<Item> visited_;
  std::unordered_set<Item, ItemHash> many_visited_;  // the same, once they are many
  std::vector<Item> open_;
  Configuration draft_;
  std::vector<Configuration*> path_;  // of a walk, by depth
  size_t work_ = 0;                   // of a walk
};

}  // namespace quire::text
