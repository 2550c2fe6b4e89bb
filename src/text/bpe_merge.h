// MergeSymbols: byte-pair encoding's inner loop. Always the pair with the lowest rank is joined, of
// equal pairs the leftmost, until no pair can be; O(n log n) in the number of symbols.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace quire::text {

// A stretch of a word that is one symbol: at first a character or byte, later what was joined.
struct BpeSymbol {
  uint32_t begin = 0;
  uint32_t length = 0;
  TokenId id = 0;  // negative: no token
};

struct BpeMerge {
  int32_t rank = 0;
  TokenId id = 0;  // of the joined symbol
};

// Memory of one thread's encoding, kept between words.
struct BpeScratch {
  struct Candidate {
    int32_t rank = 0;
    uint32_t left = 0;
    uint32_t right = 0;
    uint32_t length = 0;  // of both symbols: another length later means one of them has changed
    TokenId id = 0;

    // For a heap whose top is the next merge.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    }
  };
  struct Link {
    int32_t previous = -1;
    int32_t next = -1;
  };

  std::vector<BpeSymbol> symbols;
  std::vector<std::optional<BpeMerge>> pairs;
  std::vector<Candidate> heap;
  std::vector<Link> links;
};

namespace internal {

// For few symbols: look at every pair each time. No memory beyond the pairs, no heap.
template <typename FindMerge>
void MergeFew(BpeScratch& scratch, const FindMerge& find_merge) {
  std::vector<BpeSymbol>& symbols = scratch.symbols;
  auto& pairs = scratch.pairs;  // pairs[i]: of symbols i and i + 1
  pairs.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    pairs.push_back(find_merge(symbols[i], symbols[i + 1]));
  }
  while (true) {
    std::optional<size_t> best;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i] && (!best || pairs[i]->rank < pairs[*best]->rank)) best = i;
    }
    if (!best) return;
    const size_t at = *best;
    symbols[at].length += symbols[at + 1].length;
    symbols[at].id = pairs[at]->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(at));
    if (at > 0) pairs[at - 1] = find_merge(symbols[at - 1], symbols[at]);
    if (at < pairs.size()) pairs[at] = find_merge(symbols[at], symbols[at + 1]);
  }
}

// For many symbols: a heap of candidates; outdated ones are thrown away when they come up.
template <typename FindMerge>
void MergeMany(BpeScratch& scratch, const FindMerge& find_merge) {
  std::vector<BpeSymbol>& symbols = scratch.symbols;
  std::vector<BpeScratch::Candidate>& heap = scratch.heap;
  std::vector<BpeScratch::Link>& links = scratch.links;
  const int32_t count = static_cast<int32_t>(symbols.size());
  const auto candidate = [&](int32_t left, int32_t right) {
    const std::optional<BpeMerge> merge = find_merge(symbols[left], symbols[right]);
    if (!merge) return false;
    heap.push_back({merge->rank, static_cast<uint32_t>(left), static_cast<uint32_t>(right),
                    symbols[left].length + symbols[right].length, merge->id});
    return true;
  };
  heap.clear();
  links.resize(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    links[i] = {i - 1, i + 1 < count ? i + 1 : -1};
    if (i > 0) candidate(i - 1, i);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    BpeSymbol& left = symbols[top.left];
    BpeSymbol& right = symbols[top.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != top.length) continue;
    left.length = top.length;
    left.id = top.id;
    right.length = 0;
    const int32_t at = static_cast<int32_t>(top.left);
    const int32_t next = links[top.right].next;
    links[at].next = next;
    if (next >= 0) links[next].previous = at;
    if (links[at].previous >= 0 && candidate(links[at].previous, at)) {
      std::push_heap(heap.begin(), heap.end());
    }
    if (next >= 0 && candidate(at, next)) std::push_heap(heap.begin(), heap.end());
  }
  std::erase_if(symbols, [](const BpeSymbol& symbol) { return symbol.length == 0; });
}

}  // namespace internal

// Joins scratch.symbols in place. find_merge(left, right): the merge of two neighbours, or nullopt.
template <typename FindMerge>
void MergeSymbols(BpeScratch& scratch, const FindMerge& find_merge) {
  constexpr size_t kFew = 32;
  if (scratch.symbols.size() <= kFew) {
    internal::MergeFew(scratch, find_merge);
  } else {
    internal::MergeMany(scratch, find_merge);
  }
}

}  // namespace quire::text
