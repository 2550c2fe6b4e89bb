// Attention with a window and sinks of a run's own (StreamingLLM, 2309.17453).
#include <cmath>
#include <memory>
#include <numbers>

#include <gtest/gtest.h>

#include "kvstore/attention_test_cases.h"
#include "kvstore/attention_testing.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;
using testing::AttentionHarness;
using testing::AttentionShape;
using testing::Dice;
using testing::ExpectMatchesDouble;
using testing::ExpectSameBits;
using testing::FastTable;
using testing::FuzzRounds;
using testing::RunMixed;
using testing::TableFor;

TEST(Streaming, AQuerySeesTheSinksAndItsWindow) {
  const Sight sight{.window = 5, .sinks = 3};
  for (int slot = 0; slot <= 7; ++slot) {  // the window reaches to the sinks: 7 sees 3, 4...
    const SeenSlots seen = SlotsSeen(slot, sight);
    EXPECT_EQ(seen.sinks, 0);
    EXPECT_EQ(seen.recent.begin, 0);
    EXPECT_EQ(seen.recent.end, slot + 1);
  }
  const SeenSlots seen = SlotsSeen(8, sight);
  EXPECT_EQ(seen.sinks, 3);
  EXPECT_EQ(seen.recent.begin, 4);
  EXPECT_EQ(seen.recent.end, 9);
}

TEST(Streaming, LayersWithAWindowOfTheirOwnKeepTheTighterOneAndSeeNoSinks) {
  SequenceRun run{0, 1, 0, {}, 50, 4};
  EXPECT_EQ(SightOf(run, 0).window, 50);
  EXPECT_EQ(SightOf(run, 0).sinks, 4);
  EXPECT_EQ(SightOf(run, 20).window, 20);
  EXPECT_EQ(SightOf(run, 200).window, 50);
  EXPECT_EQ(SightOf(run, 200).sinks, 0);
  run.window = 0;
  EXPECT_EQ(SightOf(run, 0).sinks, 0);
  run.evicted = 10;
  EXPECT_EQ(SightOf(run, 0).sinks, 4);
  EXPECT_EQ(SlotsSeen(30, SightOf(run, 0)).sinks, 4);
  EXPECT_EQ(SlotsSeen(30, SightOf(run, 0)).recent.begin, 4);
  EXPECT_EQ(SightOf(SequenceRun{}, 20).window, 20);
  EXPECT_EQ(SightOf(SequenceRun{}, 0).window, 0);
}

TEST(Streaming, MatchesDoublePrecisionInEveryCodecWhileAllInBetweenIsPoisoned) {
  for (KvCodec codec : kernels::kAllKvCodecs) {
    for (const Sight& limits : {Sight{64, 4}, Sight{100, 0}, Sight{33, 40}, Sight{7, 1},
                                Sight{0, 4, 10}, Sight{50, 4, 1}, Sight{0, 270, 1}}) {
      SCOPED_TRACE(fmt::format("{} window {} sinks {}", Name(codec), limits.window, limits.sinks));
      AttentionShape shape{.q_heads = 6, .kv_heads = 2, .head_dim = 32};
      shape.format = {codec, codec, 32};
      AttentionHarness harness(shape, {.max_positions = 400, .max_rows = 150, .threads = 2});
      harness.LimitSight(0, limits);
      harness.Prefill(FastTable(), 0, 300, 150);
      harness.Prefill(FastTable(), 0, 100, 1);
      ExpectMatchesDouble(harness, 0, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Streaming, PinnedPrefixesOfManySpansAndWideWindowsMatchDoublePrecision) {
  for (const Sight& limits : {Sight{300, 300}, Sight{10, 600}, Sight{520, 257}, Sight{256, 256}}) {
    SCOPED_TRACE(fmt::format("window {} sinks {}", limits.window, limits.sinks));
    AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
    shape.windows = {0, 30, 700};
    shape.softcap = 20.0f;
    shape.format.layers = {{0, {KvCodec::kKivi4, KvCodec::kInt4}}};
    AttentionHarness harness(shape, {.max_positions = 1000, .max_rows = 950, .threads = 3});
    harness.LimitSight(0, limits);
    harness.Prefill(FastTable(), 0, 950, 950);
    harness.Prefill(FastTable(), 0, 50, 1);
    ExpectMatchesDouble(harness, 0, 17);
  }
}

// A whole prefill of every sequence alone, on one thread.
std::unique_ptr<AttentionHarness> Undisturbed(const AttentionShape& shape,
                                              const std::vector<int>& lengths,
                                              const std::vector<Sight>& limits, uint64_t seed) {
  const int sequences = static_cast<int>(lengths.size());
  auto harness = std::make_unique<AttentionHarness>(
      shape, testing::HarnessOptions{
                 .sequences = sequences, .max_positions = 900, .max_rows = 900, .seed = seed});
  for (int i = 0; i < sequences; ++i) {
    harness->LimitSight(i, limits[i]);
    harness->Prefill(FastTable(), i, lengths[i], lengths[i]);
  }
  return harness;
}

TEST(Streaming, BatchChunksThreadsAndFramesNeverChangeABit) {
  int splits = 0;
  for (int round = 0; round < FuzzRounds() / 3; ++round) {
    const uint64_t seed = 6000 + round;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const AttentionShape shape = testing::RandomShape(dice);
    std::vector<int> lengths;
    std::vector<Sight> limits;
    for (int i = dice.Between(1, 4); i > 0; --i) {
      lengths.push_back(dice.Between(1, 900));
      limits.push_back({dice.OneOf({0, 1, 30, 256, 300}), dice.OneOf({0, 1, 4, 40, 300})});
    }
    const auto whole = Undisturbed(shape, lengths, limits, seed);
    for (int threads : {1, 3}) {
      AttentionHarness mixed(shape, {.sequences = static_cast<int>(lengths.size()),
                                     .max_positions = 900,
                                     .max_rows = 900,
                                     .threads = threads,
                                     .seed = seed});
      for (size_t i = 0; i < limits.size(); ++i) mixed.LimitSight(static_cast<int>(i), limits[i]);
      splits += RunMixed(mixed, lengths, FastTable(), dice);
      ExpectSameBits(*whole, mixed);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(splits, 0);  // or the test says nothing about splitting
}

TEST(Streaming, NothingChangesAsLongAsTheWindowReachesToTheSinks) {
  for (KvCodec codec : {KvCodec::kF16, KvCodec::kInt4, KvCodec::kKivi2}) {
    AttentionShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32};
    shape.format = {codec, codec, 32};
    const auto plain = Undisturbed(shape, {304}, {{0, 0}}, 3);
    const auto limited = Undisturbed(shape, {304}, {{300, 4}}, 3);
    ExpectSameBits(*plain, *limited);
    const auto beyond = Undisturbed(shape, {305}, {{300, 4}}, 3);
    const auto unlimited = Undisturbed(shape, {305}, {{0, 0}}, 3);
    EXPECT_NE(beyond->Outputs(0, 0), unlimited->Outputs(0, 0));
  }
}

TEST(Streaming, EveryInstructionSetGivesTheScalarBits) {
  if (testing::TestedIsas().size() == 1) {
    GTEST_SKIP() << "this processor runs the scalar kernels only";
  }
  for (kernels::Isa isa : testing::TestedIsas()) {
    if (isa == kernels::Isa::kScalar) continue;
    for (int round = 0; round < FuzzRounds() / 10; ++round) {
      SCOPED_TRACE(fmt::format("round {} isa {}", round, static_cast<int>(isa)));
      Dice dice(300 + round);
      const AttentionShape shape = testing::RandomShape(dice);
      const testing::HarnessOptions options{.max_positions = 330, .max_rows = 262};
      AttentionHarness scalar(shape, options);
      scalar.LimitSight(0, {50, 4});
      scalar.Prefill(TableFor(kernels::Isa::kScalar), 0, 265, 262);
      AttentionHarness other(shape, options);
      other.LimitSight(0, {50, 4});
      other.Prefill(TableFor(isa), 0, 265, 262);
      ExpectSameBits(scalar, other);
    }
  }
}

// ---- rotary embedding

constexpr int kDim = 64;
constexpr int kSinks = 4;
constexpr int kWindow = 100;
constexpr int kSteps = 700;

std::vector<double> RawRow(int stream, int token) {
  std::vector<double> row;
  for (int c = 0; c < kDim; ++c) {
    base::CounterRng rng(stream, token, c);
    row.push_back(rng.NextUnit() * 4.0 - 2.0);
  }
  return row;
}

// Pairs (i, i + kDim/2) turned by position * 10000^(-2i/kDim).
std::vector<double> Turned(const std::vector<double>& row, int position) {
  std::vector<double> out(kDim);
  for (int i = 0; i < kDim / 2; ++i) {
    const double angle = position * std::pow(10000.0, -2.0 * i / kDim);
    const double a = row[i], b = row[i + kDim / 2];
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
  }
  return out;
}

std::vector<float> Rounded(const std::vector<double>& row) {
  return {row.begin(), row.end()};
}

// Outputs of one head, token by token, whose window's tokens have positions from `base` on: keys
// are turned once, as they come. [steps, kDim]
std::vector<float> StreamedOutputs(int base) {
  const KvLayout layout =
      std::move(KvLayout::Create({1, kDim, {0}}, {KvCodec::kF32, KvCodec::kF32, 16})).value();
  const int blocks = (kSteps + 15) / 16;
  KvStore store = std::move(KvStore::Create(layout, blocks * layout.frame_bytes())).value();
  AttentionPlan plan(layout, {.max_rows = 1, .max_sequences = 1, .q_heads = 1});
  base::ThreadTeam team(1);
  std::vector<FrameId> frames;
  for (int i = 0; i < blocks; ++i) frames.push_back({i});
  const BlockTable table{0, frames};
  std::vector<float> outputs;
  for (int slot = 0; slot < kSteps; ++slot) {
    const int position = slot < kSinks ? slot : base + slot;
    const int kept_before = std::min(slot, kSinks + kWindow - 1);
    const SequenceRun run{0, 1, slot, {&table, 1}, kWindow, kSinks};
    plan.Build({&run, 1});
    const std::vector<float> key = Rounded(Turned(RawRow(1, slot), position));
    const std::vector<float> value = Rounded(RawRow(2, slot));
    const std::vector<float> query = Rounded(Turned(RawRow(3, slot), position));
    const std::vector<float> sink_query = Rounded(Turned(RawRow(3, slot), kept_before));
    std::vector<float> out(kDim);
    WriteKv(FastTable(), plan, store, {0, {key.data(), 1, kDim}, {value.data(), 1, kDim}}, team);
    Attention(FastTable(), plan, store,
              {0,
               {query.data(), 1, kDim},
               {out.data(), 1, kDim},
               {0.125f, 0.0f},
               {},
               {sink_query.data(), 1, kDim}},
              team);
    outputs.insert(outputs.end(), out.begin(), out.end());
  }
  return outputs;
}

// As the paper has it: the kept keys are turned anew at every step, to their places in the cache.
std::vector<double> ReturnedOutput(int slot) {
  std::vector<int> kept;
  for (int s = 0; s <= slot; ++s) {
    if (s < kSinks || s > slot - kWindow) kept.push_back(s);
  }
  const int last = static_cast<int>(kept.size()) - 1;
  const std::vector<double> query = Turned(RawRow(3, slot), last);
  std::vector<double> out(kDim, 0.0);
  double sum = 0;
  for (int i = 0; i <= last; ++i) {
    const std::vector<double> key = Turned(RawRow(1, kept[i]), i);
    double score = 0;
    for (int c = 0; c < kDim; ++c) score += 0.125 * query[c] * key[c];
    const std::vector<double> value = RawRow(2, kept[i]);
    sum += std::exp(score);
    for (int c = 0; c < kDim; ++c) out[c] += std::exp(score) * value[c];
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST(Streaming, EqualsKeysTurnedAnewToTheirPlacesInTheCache) {
  // Positions are turned in f64 and rounded once, so four million is as good as none.
  for (int base : {0, 4'000, 4'000'000}) {
    const std::vector<float> got = StreamedOutputs(base);
    // The jump in positions lies within the window for a while; then all of it is behind.
    const int first = base == 0 ? 0 : kSinks + kWindow;
    for (int slot = first; slot < kSteps; ++slot) {
      const std::vector<double> want = ReturnedOutput(slot);
      double error = 0, length = 0;
      for (int c = 0; c < kDim; ++c) {
        const double difference = got[static_cast<size_t>(slot) * kDim + c] - want[c];
        error += difference * difference;
        length += want[c] * want[c];
      }
      ASSERT_LE(std::sqrt(error), 1e-5 * std::sqrt(length)) << "base " << base << " slot " << slot;
    }
  }
}

}  // namespace
}  // namespace quire::kvstore
