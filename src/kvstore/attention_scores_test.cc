#include "kvstore/attention_scores.h"

#include <memory>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "kvstore/attention_test_cases.h"
#include "kvstore/attention_testing.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;
using testing::AttentionHarness;
using testing::AttentionShape;
using testing::Dice;
using testing::FastTable;
using testing::FuzzRounds;
using testing::RunMixed;
using testing::Scored;
using testing::TableFor;

struct Sums {
  std::vector<double> sum;        // [length]
  std::vector<double> tolerance;  // [length] of f32 arithmetic on plain codecs
};

// Of rows [first, length) of sequence 0, in double precision.
Sums ReferenceSums(const AttentionHarness& harness, int layer, int kv_head, int first) {
  const testing::Reference reference(harness, 0, layer, kv_head);
  const int length = harness.length(0);
  const int group_size = harness.shape().group_size();
  Sums sums{std::vector<double>(length, 0.0), std::vector<double>(length, 0.0)};
  for (int p = first; p < length; ++p) {
    for (int q_head = kv_head * group_size; q_head < (kv_head + 1) * group_size; ++q_head) {
      const testing::ReferenceWeights row = reference.Weights(p, q_head);
      for (size_t i = 0; i < row.weights.size(); ++i) {
        sums.sum[row.slots[i]] += row.weights[i] / group_size;
        sums.tolerance[row.slots[i]] += row.weights[i] / group_size * row.tolerance;
      }
    }
  }
  for (int p = 0; p < length; ++p) {  // each addition rounds once
    sums.tolerance[p] += sums.sum[p] * length * group_size * 0x1p-24 + 1e-30;
  }
  return sums;
}

void ExpectScoresMatchDouble(AttentionHarness& harness, int first) {
  for (int layer = 0; layer < harness.layers(); ++layer) {
    const bool quantized = IsQuantized(harness.layout().codecs(layer).keys);
    for (int kv_head = 0; kv_head < harness.shape().kv_heads; ++kv_head) {
      const Sums want = ReferenceSums(harness, layer, kv_head, first);
      const float* got = harness.ScoreRows(0, layer).row(kv_head);
      double error = 0, length = 0;
      for (int p = 0; p < harness.length(0); ++p) {
        if (!quantized) {
          ASSERT_NEAR(got[p], want.sum[p], want.tolerance[p]) << "layer " << layer << " slot " << p;
        }
        error += (got[p] - want.sum[p]) * (got[p] - want.sum[p]);
        length += want.sum[p] * want.sum[p];
      }
      ASSERT_GT(length, 0);
      ASSERT_LE(std::sqrt(error), testing::kQuantizedError * std::sqrt(length));
    }
  }
}

TEST(AttentionScores, OfPrefillAndDecodeMatchDoublePrecisionInEveryCodecAndHeadCount) {
  struct Shape {
    int q_heads;
    int kv_heads;
    int block_size;
  };
  constexpr Shape kShapes[] = {{2, 2, 32}, {6, 2, 16}, {6, 2, 32}, {6, 2, 64}, {5, 1, 32}};
  for (KvCodec codec : kernels::kAllKvCodecs) {
    for (const Shape& s : kShapes) {
      if (s.block_size < MinBlockSize(codec)) continue;
      SCOPED_TRACE(fmt::format("codec {} heads {}/{} block {}", Name(codec), s.q_heads, s.kv_heads,
                               s.block_size));
      AttentionShape shape{.q_heads = s.q_heads, .kv_heads = s.kv_heads, .head_dim = 32};
      shape.format = {codec, codec, s.block_size};
      AttentionHarness harness(shape, {.max_positions = 310, .max_rows = 290, .threads = 2});
      harness.Prefill(FastTable(), 0, 290, 200, 0);
      EXPECT_FALSE(harness.plan().units(0).score_units.empty());  // a second pass
      harness.Prefill(FastTable(), 0, 20, 1, 0);
      EXPECT_TRUE(harness.plan().units(0).score_units.empty());  // kept weights
      ExpectScoresMatchDouble(harness, 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionScores, SoftcapAndWindowsAreThoseOfTheRow) {
  AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
  shape.windows = {0, 1, 33, 256, 300};
  shape.softcap = 5.0f;
  shape.format.layers = {{2, {KvCodec::kKivi4, KvCodec::kInt8}}};
  AttentionHarness harness(shape, {.max_positions = 600, .max_rows = 600, .threads = 3});
  harness.Prefill(FastTable(), 0, 570, 190, 0);
  harness.Prefill(FastTable(), 0, 30, 1, 0);
  ExpectScoresMatchDouble(harness, 0);
}

TEST(AttentionScores, OfTheLastRowsAloneMatchDoublePrecision) {
  for (int observed : {1, 3, 32, 100, 289}) {
    for (auto [q_heads, kv_heads] : {std::pair(2, 2), std::pair(8, 2)}) {
      SCOPED_TRACE(fmt::format("last {} rows, heads {}/{}", observed, q_heads, kv_heads));
      AttentionShape shape{.q_heads = q_heads, .kv_heads = kv_heads, .head_dim = 32};
      AttentionHarness harness(shape, {.max_positions = 300, .max_rows = 290, .threads = 2});
      harness.Prefill(FastTable(), 0, 10, 10);
      harness.Step(FastTable(), {{0, 290, 290 - observed}});
      ExpectScoresMatchDouble(harness, 300 - observed);
    }
  }
}

TEST(AttentionScores, OfOneRowIntoZeroesSumToOneWithoutWhatWasThere) {
  AttentionShape shape{.q_heads = 6, .kv_heads = 3, .head_dim = 32};
  AttentionHarness harness(shape, {.max_positions = 600, .max_rows = 599});
  harness.Prefill(FastTable(), 0, 599, 599, 0);
  std::ranges::fill(harness.Scores(0, 0), 0.0f);
  harness.Step(FastTable(), {{0, 1, 0}});
  ExpectScoresMatchDouble(harness, 599);
  for (int head = 0; head < 3; ++head) {
    const float* row = harness.ScoreRows(0, 0).row(head);
    EXPECT_NEAR(std::accumulate(row, row + 600, 0.0), 1.0, 1e-5);
  }
}

TEST(AttentionScores, SlotsThatNoRowSeesAreLeftAlone) {
  AttentionShape shape{.q_heads = 2, .kv_heads = 2, .head_dim = 16};
  shape.windows = {40};
  AttentionHarness harness(shape, {.max_positions = 400, .max_rows = 100, .threads = 2});
  harness.Prefill(FastTable(), 0, 200, 100);
  // A weight may vanish beside another number, but 0 + -0 is 0.
  std::ranges::fill(harness.Scores(0, 0), -0.0f);
  harness.Step(FastTable(), {{0, 100, 50}});  // positions 250.. see slots 211..
  harness.Step(FastTable(), {{0, 1, 0}});
  for (int head = 0; head < 2; ++head) {
    const float* row = harness.ScoreRows(0, 0).row(head);
    for (int p = 0; p < 400; ++p) {
      EXPECT_EQ(std::signbit(row[p]), p < 211 || p > 300) << "slot " << p;
    }
  }
}

void ExpectSameScores(AttentionHarness& a, AttentionHarness& b) {
  testing::ExpectSameBits(a, b);
  for (int layer = 0; layer < a.layers(); ++layer) {
    for (int s = 0; s < a.sequences(); ++s) {
      ASSERT_EQ(a.Scores(s, layer).size(), b.Scores(s, layer).size());
      ASSERT_EQ(std::memcmp(a.Scores(s, layer).data(), b.Scores(s, layer).data(),
                            a.Scores(s, layer).size() * sizeof(float)),
                0)
          << "sequence " << s << " layer " << layer;
    }
  }
}

TEST(AttentionScores, BatchChunksThreadsAndTheWayTheyAreFoundNeverChangeABit) {
  for (int round = 0; round < FuzzRounds() / 2; ++round) {
    const uint64_t seed = 4000 + round;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    AttentionShape shape = testing::RandomShape(dice);
    std::vector<int> lengths;
    for (int i = dice.Between(1, 4); i > 0; --i) lengths.push_back(dice.Between(1, 700));
    const int sequences = static_cast<int>(lengths.size());
    AttentionHarness whole(
        shape, {.sequences = sequences, .max_positions = 700, .max_rows = 700, .seed = seed});
    for (int i = 0; i < sequences; ++i) {
      whole.Step(FastTable(), {{i, lengths[i], i % 2 == 0 ? std::optional(0) : std::nullopt}});
    }
    for (int threads : {1, 3}) {
      AttentionHarness mixed(shape, {.sequences = sequences,
                                     .max_positions = 700,
                                     .max_rows = 700,
                                     .threads = threads,
                                     .seed = seed});
      RunMixed(mixed, lengths, FastTable(), dice, Scored::kEven);
      ExpectSameScores(whole, mixed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionScores, EveryInstructionSetGivesTheScalarBits) {
  if (testing::TestedIsas().size() == 1) {
    GTEST_SKIP() << "this processor runs the scalar kernels only";
  }
  for (kernels::Isa isa : testing::TestedIsas()) {
    if (isa == kernels::Isa::kScalar) continue;
    for (int round = 0; round < FuzzRounds() / 10; ++round) {
      const uint64_t seed = 90 + round;
      SCOPED_TRACE(fmt::format("seed {} isa {}", seed, static_cast<int>(isa)));
      Dice dice(seed);
      const AttentionShape shape = testing::RandomShape(dice);
      const testing::HarnessOptions options{.max_positions = 330, .max_rows = 262, .seed = seed};
      AttentionHarness scalar(shape, options);
      scalar.Prefill(TableFor(kernels::Isa::kScalar), 0, 262, 262, 0);
      scalar.Prefill(TableFor(kernels::Isa::kScalar), 0, 3, 1, 0);
      AttentionHarness other(shape, options);
      other.Prefill(TableFor(isa), 0, 262, 262, 0);
      other.Prefill(TableFor(isa), 0, 3, 1, 0);
      ExpectSameScores(scalar, other);
    }
  }
}

TEST(AttentionScores, AskingForThemChangesNoBitOfTheOutput) {
  AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
  shape.format = {KvCodec::kInt4, KvCodec::kKivi2, 32};
  AttentionHarness plain(shape, {.max_positions = 400, .max_rows = 300, .threads = 2});
  AttentionHarness scored(shape, {.max_positions = 400, .max_rows = 300, .threads = 2});
  plain.Prefill(FastTable(), 0, 300, 300);
  plain.Prefill(FastTable(), 0, 100, 1);
  scored.Prefill(FastTable(), 0, 300, 300, 0);
  scored.Prefill(FastTable(), 0, 100, 1, 0);
  for (float sum : plain.Scores(0, 0)) ASSERT_EQ(sum, 0.0f);
  EXPECT_EQ(plain.Outputs(0, 0), scored.Outputs(0, 0));
}

// In one pass (few rows) and in two.
TEST(AttentionScores, RowsBeyondTheEndAddNothing) {
  const AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
  for (const int rows : {8, 300}) {
    AttentionHarness whole(shape, {.max_positions = 400, .max_rows = 300, .threads = 2});
    AttentionHarness part(shape, {.max_positions = 400, .max_rows = 300, .threads = 2});
    whole.Step(FastTable(), {{.sequence = 0, .rows = rows, .first_scored = 2, .end_scored = 5}});
    part.Step(FastTable(), {{.sequence = 0, .rows = 5, .first_scored = 2}});
    EXPECT_EQ(whole.Scores(0, 0), part.Scores(0, 0));
  }
}

// What a plan promises about memory: requests whose weights are kept never share any, the others
// are covered by the second pass once, and nothing grows.
TEST(AttentionScores, EveryRequestIsKeptOrScoredAgainOnceAndNothingGrows) {
  int kept = 0;
  int again = 0;
  for (int round = 0; round < 200; ++round) {
    const uint64_t seed = 700 + round;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const AttentionShape shape = testing::RandomShape(dice);
    const KvLayout layout =
        std::move(KvLayout::Create({shape.kv_heads, shape.head_dim, shape.windows}, shape.format))
            .value();
    const AttentionLimits limits{600, dice.Between(1, 60), shape.q_heads, dice.Between(1, 24)};
    AttentionPlan plan(layout, limits);
    const size_t capacity = plan.units(0).score_units.capacity();
    const std::vector<FrameId> frames(20000 / 16 + 1);
    const std::vector<BlockTable> tables(layout.table_count(), {0, frames});
    std::vector<SequenceRun> runs;
    std::vector<ScoreRequest> requests;
    int rows = 0;
    for (int i = 0; i < limits.max_sequences; ++i) {
      const int count = std::min(600 - rows - limits.max_sequences, dice.OneOf({1, 1, 1, 5, 200}));
      if (count < 1) break;
      runs.push_back({rows, count, dice.OneOf({0, 30, 2000, 19000}), tables});
      if (dice.Between(0, 3) > 0) {
        const int first = dice.Between(0, count - 1);
        requests.push_back({i, first, dice.Between(first + 1, count)});
      }
      rows += count;
    }
    plan.Build(runs, requests);
    const AttentionPlan::UnitList& list = plan.units(0);
    EXPECT_EQ(list.score_units.capacity(), capacity);
    std::set<const float*> weights;  // [rows] of kept spans
    std::set<int> requests_kept;
    for (const AttentionPlan::Unit& unit : list.units) {
      if (!unit.first_kept) continue;
      requests_kept.insert(*plan.request_of(unit.run));
      for (int span = unit.first_span; span <= unit.last_span; ++span) {
        const float* first = plan.kept(unit, span).weights;
        for (int r = 0; r < unit.rows; ++r) {
          ASSERT_TRUE(weights.insert(first + r * kernels::kSpan).second);
        }
      }
    }
    std::set<std::tuple<int, int, int>> spans;  // request, head, span
    for (const AttentionPlan::ScoreUnit& unit : list.score_units) {
      ASSERT_FALSE(requests_kept.contains(unit.request));
      for (int span = unit.first_span; span <= unit.last_span; ++span) {
        ASSERT_TRUE(spans.insert({unit.request, unit.kv_head, span}).second);
      }
    }
    for (int i = 0; i < static_cast<int>(requests.size()); ++i) {
      const SequenceRun& run = runs[requests[i].run];
      if (requests_kept.contains(i)) {
        ++kept;
        continue;
      }
      ++again;
      const int first = VisibleRange(run.first_position + requests[i].first_row, list.window).begin;
      for (int span = first / kernels::kSpan;
           span <= (run.first_position + requests[i].end_row - 1) / kernels::kSpan; ++span) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          ASSERT_TRUE(spans.contains({i, head, span})) << "request " << i << " span " << span;
        }
      }
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(again, 100);
}

}  // namespace
}  // namespace quire::kvstore
