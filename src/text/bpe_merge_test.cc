#include "text/bpe_merge.h"

#include <map>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::text {
namespace {

constexpr uint64_t kSeed = 4242;

using Rules = std::map<std::pair<TokenId, TokenId>, BpeMerge>;

// Random rules over 4 letters: rule i joins two ids known by then to a new one.
Rules RandomRules(base::CounterRng& rng, int count) {
  Rules rules;
  for (int i = 0; i < count; ++i) {
    const TokenId known = 4 + static_cast<TokenId>(rules.size());
    const std::pair<TokenId, TokenId> pair(static_cast<TokenId>(rng.NextBelow(known)),
                                           static_cast<TokenId>(rng.NextBelow(known)));
    // Several rules may share a rank, as several pieces may share a score.
    rules.try_emplace(pair, BpeMerge{i / 2, known});
  }
  return rules;
}

std::vector<TokenId> Naive(std::vector<TokenId> ids, const Rules& rules) {
  while (true) {
    std::optional<size_t> best;
    const auto rule = [&](size_t i) { return rules.find({ids[i], ids[i + 1]}); };
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (rule(i) == rules.end()) continue;
      if (!best || rule(i)->second.rank < rule(*best)->second.rank) best = i;
    }
    if (!best) return ids;
    ids[*best] = rule(*best)->second.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
}

TEST(MergeSymbols, EqualsTheNaiveTwinForShortAndLongWords) {
  BpeScratch scratch;
  for (uint64_t round = 0; round < 1000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 1, round);
    const Rules rules = RandomRules(rng, 30);
    std::vector<TokenId> ids(rng.NextBelow(120));
    scratch.symbols.clear();
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<TokenId>(rng.NextBelow(4));
      scratch.symbols.push_back({static_cast<uint32_t>(i), 1, ids[i]});
    }
    MergeSymbols(scratch, [&](const BpeSymbol& left, const BpeSymbol& right) {
      const auto rule = rules.find({left.id, right.id});
      return rule == rules.end() ? std::nullopt : std::optional(rule->second);
    });
    std::vector<TokenId> merged;
    uint32_t position = 0;
    for (const BpeSymbol& symbol : scratch.symbols) {
      ASSERT_EQ(symbol.begin, position);
      position += symbol.length;
      merged.push_back(symbol.id);
    }
    ASSERT_EQ(position, ids.size());
    ASSERT_EQ(merged, Naive(ids, rules));
  }
}

}  // namespace
}  // namespace quire::text
