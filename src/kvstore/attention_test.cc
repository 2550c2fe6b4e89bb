#include "kvstore/attention.h"

#include <memory>

#include <gtest/gtest.h>

#include "kernels/attention_math.h"
#include "kvstore/attention_test_cases.h"
#include "kvstore/attention_testing.h"

namespace quire::kvstore {
namespace {

using kernels::Isa;
using kernels::KvCodec;
using testing::AttentionHarness;
using testing::AttentionShape;
using testing::Dice;
using testing::ExpectMatchesDouble;
using testing::ExpectSameBits;
using testing::FastTable;
using testing::FuzzRounds;
using testing::HarnessOptions;
using testing::HasQuantized;
using testing::RandomShape;
using testing::RunMixed;
using testing::TableFor;
using testing::TestedIsas;

TEST(Attention, EveryLengthUpTo300MatchesDoublePrecisionInEveryCodecAndBlockSize) {
  for (Isa isa : TestedIsas()) {
    for (KvCodec codec : kernels::kAllKvCodecs) {
      for (int block_size : {16, 32, 64}) {
        if (block_size < MinBlockSize(codec)) continue;
        SCOPED_TRACE(fmt::format("isa {} codec {} block {}", static_cast<int>(isa), Name(codec),
                                 block_size));
        AttentionShape shape{.q_heads = 3, .kv_heads = 1, .head_dim = 32};
        shape.format = {codec, codec, block_size};
        AttentionHarness harness(shape, {.max_positions = 300, .max_rows = 300, .threads = 2});
        harness.Prefill(TableFor(isa), 0, 150, 150);
        harness.Prefill(TableFor(isa), 0, 150, 1);  // the second half one by one
        ExpectMatchesDouble(harness, 0, 1);
      }
    }
  }
}

TEST(Attention, HeadSizesAndGroupsMatchDoublePrecision) {
  for (Isa isa : TestedIsas()) {
    for (int head_dim : {1, 5, 8, 24, 32, 64, 80, 96, 100, 112, 128, 256}) {
      for (auto [q_heads, kv_heads] : {std::pair(2, 2), std::pair(14, 2), std::pair(9, 1)}) {
        SCOPED_TRACE(fmt::format("isa {} head size {} heads {}/{}", static_cast<int>(isa), head_dim,
                                 q_heads, kv_heads));
        AttentionShape shape{.q_heads = q_heads, .kv_heads = kv_heads, .head_dim = head_dim};
        shape.format = {KvCodec::kF16, KvCodec::kBf16, 16};
        AttentionHarness harness(shape, {.max_positions = 50, .max_rows = 50});
        harness.Prefill(TableFor(isa), 0, 50, 47);
        ExpectMatchesDouble(harness, 0, 7);
      }
    }
  }
}

TEST(Attention, QuantizedHeadSizesAndGroupsMatchDoublePrecision) {
  for (KvCodec codec : kernels::kAllKvCodecs) {
    if (!IsQuantized(codec)) continue;
    for (int head_dim : {8, 40, 64, 80, 96, 112, 128, 256}) {
      for (auto [q_heads, kv_heads] : {std::pair(2, 2), std::pair(14, 2), std::pair(9, 1)}) {
        SCOPED_TRACE(
            fmt::format("{} head size {} heads {}/{}", Name(codec), head_dim, q_heads, kv_heads));
        AttentionShape shape{.q_heads = q_heads, .kv_heads = kv_heads, .head_dim = head_dim};
        shape.format = {codec, codec, 32};
        shape.format.residual_tokens = 32;
        AttentionHarness harness(shape, {.max_positions = 100, .max_rows = 100});
        harness.Prefill(FastTable(), 0, 100, 67);
        ExpectMatchesDouble(harness, 0, 9);
      }
    }
  }
}

TEST(Attention, WindowsAndSoftcapMatchDoublePrecision) {
  for (Isa isa : TestedIsas()) {
    for (float softcap : {0.0f, 2.0f, 50.0f}) {
      AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
      shape.windows = {0, 1, 5, 33, 300, 0, 256};
      shape.softcap = softcap;
      shape.format.layers = {{2, {KvCodec::kKivi4, KvCodec::kInt8}},
                             {4, {KvCodec::kInt4, KvCodec::kFp8E4M3}}};
      shape.format.residual_tokens = 32;
      AttentionHarness harness(shape, {.max_positions = 600, .max_rows = 600, .threads = 3});
      harness.Prefill(TableFor(isa), 0, 30, 1);
      harness.Prefill(TableFor(isa), 0, isa == Isa::kScalar ? 250 : 570, 190);
      ExpectMatchesDouble(harness, 0, 23);
    }
  }
}

// Every sequence alone, whole, on one thread.
std::unique_ptr<AttentionHarness> Undisturbed(const AttentionShape& shape,
                                              const std::vector<int>& lengths, uint64_t seed) {
  int longest = *std::max_element(lengths.begin(), lengths.end());
  int sequences = static_cast<int>(lengths.size());
  auto harness = std::make_unique<AttentionHarness>(
      shape, HarnessOptions{.sequences = sequences,
                            .max_positions = longest,
                            .max_rows = std::max(longest, sequences),
                            .seed = seed});
  for (int i = 0; i < sequences; ++i) harness->Prefill(FastTable(), i, lengths[i], lengths[i]);
  return harness;
}

TEST(Attention, BatchChunksThreadsAndFramesNeverChangeABit) {
  int splits = 0;
  for (int round = 0; round < FuzzRounds(); ++round) {
    uint64_t seed = 1000 + round;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    AttentionShape shape = RandomShape(dice);
    std::vector<int> lengths;
    for (int i = dice.Between(1, 4); i > 0; --i) lengths.push_back(dice.Between(1, 700));
    auto whole = Undisturbed(shape, lengths, seed);
    // The block size must not matter either, unless numbers of a block share something.
    const int block_size = dice.OneOf({16, 32, 64});
    if (!HasQuantized(whole->layout())) shape.format.block_size = block_size;
    for (int threads : {1, 2, 3}) {
      AttentionHarness mixed(shape, {.sequences = static_cast<int>(lengths.size()),
                                     .max_positions = 700,
                                     .max_rows = 700,
                                     .threads = threads,
                                     .seed = seed});
      splits += RunMixed(mixed, lengths, FastTable(), dice);
      ExpectSameBits(*whole, mixed);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(splits, 0);  // or the test says nothing about splitting
}

TEST(Attention, ChunksOf1And7And64EqualWholePrefillBitForBit) {
  for (KvCodec codec : kernels::kAllKvCodecs) {
    for (int block_size : {16, 32, 64}) {
      if (block_size < MinBlockSize(codec)) continue;
      AttentionShape shape{.q_heads = 7, .kv_heads = 1, .head_dim = 48};
      shape.windows = {0, 50};
      shape.format = {codec, codec, block_size};
      auto whole = Undisturbed(shape, {300}, 3);
      for (int chunk : {1, 7, 64}) {
        SCOPED_TRACE(fmt::format("codec {} block {} chunk {}", Name(codec), block_size, chunk));
        AttentionHarness chunked(shape, {.max_positions = 300, .max_rows = 300, .seed = 3});
        chunked.Prefill(FastTable(), 0, 300, chunk);
        ExpectSameBits(*whole, chunked);
      }
    }
  }
}

TEST(Attention, EveryInstructionSetGivesTheScalarBits) {
  if (TestedIsas().size() == 1) GTEST_SKIP() << "this processor runs the scalar kernels only";
  for (Isa isa : TestedIsas()) {
    if (isa == Isa::kScalar) continue;
    for (int round = 0; round < FuzzRounds() / 2; ++round) {
      uint64_t seed = 77 + round;
      SCOPED_TRACE(fmt::format("seed {} isa {}", seed, static_cast<int>(isa)));
      Dice dice(seed);
      AttentionShape shape = RandomShape(dice);
      std::vector<int> lengths = {dice.Between(1, 290), dice.Between(1, 50)};
      HarnessOptions options{.sequences = 2, .max_positions = 330, .max_rows = 262, .seed = seed};
      AttentionHarness scalar(shape, options);
      Dice steps(seed);
      RunMixed(scalar, lengths, TableFor(Isa::kScalar), steps);
      AttentionHarness other(shape, options);
      Dice same_steps(seed);
      RunMixed(other, lengths, TableFor(isa), same_steps);
      ExpectSameBits(scalar, other);
    }
  }
}

TEST(Attention, ANaNTokenReachesNoEarlierRow) {
  AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
  shape.windows = {0, 40};
  shape.format.key_codec = KvCodec::kF32;
  auto clean = Undisturbed(shape, {200}, 5);
  for (int poisoned : {0, 3, 17, 100, 199}) {
    AttentionHarness harness(shape, {.max_positions = 200, .max_rows = 200, .seed = 5});
    harness.PoisonPosition(0, poisoned);
    harness.Prefill(FastTable(), 0, 200, 200);
    for (int layer = 0; layer < 2; ++layer) {
      for (int p = 0; p < 200; ++p) {
        PositionRange seen = VisibleRange(p, shape.windows[layer]);
        bool sees = seen.begin <= poisoned && poisoned < seen.end;
        const float* out = harness.Output(0, layer, p, 0);
        if (sees) {
          EXPECT_TRUE(std::isnan(out[0])) << "layer " << layer << " position " << p;
        } else {
          EXPECT_EQ(std::memcmp(out, clean->Output(0, layer, p, 0), harness.q_size() * 4), 0)
              << "layer " << layer << " position " << p << " poisoned " << poisoned;
        }
      }
    }
  }
}

TEST(Attention, OverflowingKeysAndValuesSaturate) {
  for (Isa isa : TestedIsas()) {
    for (KvCodec codec : {KvCodec::kF16, KvCodec::kBf16}) {
      KvLayout layout = std::move(KvLayout::Create({1, 8, {0}}, {codec, codec, 16})).value();
      KvStore store = std::move(KvStore::Create(layout, layout.frame_bytes())).value();
      AttentionPlan plan(layout, {.max_rows = 1, .max_sequences = 1, .q_heads = 1});
      base::ThreadTeam team(1);
      FrameId frame{0};
      BlockTable table{0, {&frame, 1}};
      SequenceRun run{0, 1, 0, {&table, 1}};
      plan.Build({&run, 1});
      constexpr float kInf = std::numeric_limits<float>::infinity();
      std::vector<float> huge = {3.4e38f, -3.4e38f, kInf, -kInf, 1, 0, -0.0f, 1e-40f};
      std::vector<float> ones(8, 1e-30f), out(8);
      kernels::KernelTable kernels = TableFor(isa);
      WriteKv(kernels, plan, store, {0, {huge.data(), 1, 8}, {huge.data(), 1, 8}}, team);
      Attention(kernels, plan, store, {0, {ones.data(), 1, 8}, {out.data(), 1, 8}, {}}, team);
      float largest = codec == KvCodec::kF16 ? 65504.0f : 0x1.fep127f;
      std::vector<float> expected = {largest, -largest, largest, -largest, 1, 0, 0, 0};
      if (codec == KvCodec::kBf16) expected[7] = testing::Stored(codec, 1e-40f);
      EXPECT_EQ(out, expected);
    }
  }
}

TEST(Attention, CopiedTokensServeAsTheOriginalsDo) {
  AttentionShape shape{.q_heads = 2, .kv_heads = 2, .head_dim = 20};
  shape.windows = {0, 64, 64, 0, 64};
  shape.format = {KvCodec::kF16, KvCodec::kF32, 32};
  auto whole = Undisturbed(shape, {60}, 9);
  for (int copied : {1, 15, 31, 32}) {
    AttentionHarness harness(shape, {.max_positions = 60, .max_rows = 60, .seed = 9});
    harness.Prefill(FastTable(), 0, copied, copied);
    for (int group = 0; group < harness.layout().group_count(); ++group) {
      FrameId from = harness.frame(0, group, 0);
      FrameId to = harness.spare_frame();
      harness.store().CopyTokens(from, to, copied, group);
      std::memset(harness.store().frame(from), 0xff, harness.layout().frame_bytes());
      harness.store().CopyTokens(to, from, copied, group);
    }
    harness.Prefill(FastTable(), 0, 60 - copied, 60);
    ExpectSameBits(*whole, harness);
  }
}

TEST(AttentionPlan, UnitsCoverEveryRowAndSpanOnceAndNothingGrows) {
  for (int round = 0; round < 300; ++round) {
    uint64_t seed = 500 + round;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    AttentionShape shape = RandomShape(dice);
    KvLayout layout =
        std::move(KvLayout::Create({shape.kv_heads, shape.head_dim, shape.windows}, shape.format))
            .value();
    AttentionLimits limits{.max_rows = 600,
                           .max_sequences = dice.Between(1, 40),
                           .q_heads = shape.q_heads,
                           .threads = dice.Between(1, 24)};
    AttentionPlan plan(layout, limits);
    size_t capacity = plan.units(0).units.capacity();
    std::vector<FrameId> frames(20000 / 16 + 1);
    std::vector<BlockTable> tables(layout.table_count(), {0, frames});
    std::vector<SequenceRun> runs;
    int rows = 0;
    for (int i = 0; i < limits.max_sequences; ++i) {
      int count = std::min(600 - rows - limits.max_sequences, dice.OneOf({1, 1, 1, 5, 200}));
      if (count < 1) break;
      runs.push_back({rows, count, dice.OneOf({0, 30, 2000, 19000}), tables});
      rows += count;
    }
    plan.Build(runs);
    EXPECT_EQ(plan.units(0).units.capacity(), capacity);
    // seen[run, head, row]: how many spans were handed out, against how many there are.
    int window = shape.windows[0];
    std::vector<int> handed(static_cast<size_t>(rows) * shape.q_heads, 0);
    for (const AttentionPlan::Unit& unit : plan.units(0).units) {
      const SequenceRun& run = runs[unit.run];
      for (int r = 0; r < unit.rows; ++r) {
        int row = run.first_row + (unit.first + r) / shape.group_size();
        int q_head = unit.kv_head * shape.group_size() + (unit.first + r) % shape.group_size();
        int position = run.first_position + (unit.first + r) / shape.group_size();
        PositionRange seen = VisibleRange(position, window);
        int first = std::max(unit.first_span, seen.begin / kernels::kSpan);
        int last = std::min(unit.last_span, (seen.end - 1) / kernels::kSpan);
        handed[row * shape.q_heads + q_head] += std::max(0, last - first + 1);
      }
    }
    for (const SequenceRun& run : runs) {
      for (int i = 0; i < run.rows; ++i) {
        PositionRange seen = VisibleRange(run.first_position + i, window);
        int spans = (seen.end - 1) / kernels::kSpan - seen.begin / kernels::kSpan + 1;
        for (int h = 0; h < shape.q_heads; ++h) {
          ASSERT_EQ(handed[(run.first_row + i) * shape.q_heads + h], spans);
        }
      }
    }
  }
}

TEST(AttentionMath, ExpIsWithinTwoUlpAndTanhWithinFourEps) {
  EXPECT_EQ(kernels::ExpNonPositive(0.0f), 1.0f);
  EXPECT_EQ(kernels::ExpNonPositive(-INFINITY), 0.0f);
  for (float x = 0.0f; x >= -87.0f; x = std::nextafter(x * 1.00003f, -100.0f) - 1e-7f) {
    double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(kernels::ExpNonPositive(x), exact, exact * 0x1p-22) << x;
  }
  for (float cap : {1.0f, 30.0f, 50.0f}) {
    for (float s = -400.0f; s < 400.0f; s += 0.0371f) {
      double exact = cap * std::tanh(static_cast<double>(s) / cap);
      ASSERT_NEAR(kernels::Softcap(s, cap), exact, cap * 0x1p-22) << s;
    }
  }
}

}  // namespace
}  // namespace quire::kvstore
