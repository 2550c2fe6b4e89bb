// What attention finds is what was written: every block, as rows of every residual group see it,
// however a sequence was cut into steps, byte for byte.
#include <cstring>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/attention_kernels.h"
#include "kvstore/block_lookup.h"
#include "kvstore/write_kv.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

constexpr int kHeads = 2;
constexpr int kMaxTokens = 320;

float Value(int plane, int layer, int position, int column) {
  base::CounterRng rng(1 + plane, static_cast<uint64_t>(layer) << 32 | position, column);
  return static_cast<float>(rng.NextUnit() * 4.0 - 2.0) * (column % 16 == 3 ? 5.0f : 1.0f);
}

struct Case {
  KvFormat format;
  int head_dim = 64;
  std::vector<int> windows = {0, 0};
};

// One sequence that grows step by step, and what its blocks must be.
class Sequence {
 public:
  explicit Sequence(const Case& c)
      : layout_(std::move(KvLayout::Create({kHeads, c.head_dim, c.windows}, c.format)).value()),
        kernels_(kernels::DefaultKernels()),
        cache_(Options()),
        store_(std::move(KvStore::Create(layout_, cache_.options().frames * layout_.frame_bytes()))
                   .value()),
        plan_(layout_, {.max_rows = kMaxTokens, .max_sequences = 1, .q_heads = kHeads}),
        team_(1) {
    // All ones: NaN where nothing was written.
    std::memset(store_.frame({0}), 0xff, store_.arena_bytes());
  }

  void Step(int rows) {
    const int first = lease_ ? lease_->committed() : 0;
    if (!lease_) lease_ = cache_.Reserve(cache_.NoMatch({}), rows);
    QUIRE_CHECK(lease_.has_value() && cache_.Extend(*lease_, first + rows));
    std::vector<BlockTable> tables;
    for (int t = 0; t < layout_.table_count(); ++t) tables.push_back(TableOf(*lease_, t));
    const SequenceRun run{0, rows, first, tables};
    plan_.Build({&run, 1});
    for (int layer = 0; layer < layout_.layers(); ++layer) {
      const std::vector<float> keys = Rows(0, layer, first, rows);
      const std::vector<float> values = Rows(1, layer, first, rows);
      const int64_t width = static_cast<int64_t>(kHeads) * layout_.head_dim();
      WriteKv(kernels_, plan_, store_,
              {layer, {keys.data(), rows, width}, {values.data(), rows, width}}, team_);
      for (const AttentionPlan::Unit& unit : plan_.units(layer).units) Check(layer, unit);
    }
    const std::vector<TokenId> tokens(first + rows, 1);
    cache_.Commit(*lease_, tokens);
    cache_.CheckInvariants();
  }

  int committed() const { return lease_ ? lease_->committed() : 0; }
  int checked() const { return checked_; }

 private:
  kv::KvCacheOptions Options() const {
    kv::KvCacheOptions options = layout_.CacheOptions(1);
    options.max_leases = 1;
    options.max_lease_tokens = kMaxTokens;
    options.frames = kv::KvCache::FramesForSequence(options, kMaxTokens, kMaxTokens);
    return options;
  }

  std::vector<float> Rows(int plane, int layer, int first, int count) const {
    std::vector<float> rows;
    for (int p = first; p < first + count; ++p) {
      for (int c = 0; c < kHeads * layout_.head_dim(); ++c)
        rows.push_back(Value(plane, layer, p, c));
    }
    return rows;
  }

  // [tokens, head_dim] of a block's leading tokens, as the codec stores rows.
  std::vector<float> HeadRows(int plane, int layer, int head, int block, int tokens) const {
    const int d = layout_.head_dim();
    std::vector<float> rows;
    for (int t = 0; t < tokens; ++t) {
      for (int c = 0; c < d; ++c) {
        rows.push_back(Value(plane, layer, block * layout_.block_size() + t, head * d + c));
      }
      if (plane == 0 ? layout_.format().rotates_keys(layer)
                     : layout_.format().rotates_values(layer)) {
        kernels_.attention->rotate(rows.data() + t * d, d);
      }
    }
    return rows;
  }

  // A piece into which a block's leading tokens were encoded at once.
  std::vector<std::byte> Encoded(int plane, KvCodec codec, const std::vector<float>& rows,
                                 int block_size) const {
    const int d = layout_.head_dim();
    const int count = static_cast<int>(rows.size()) / d;
    std::vector<std::byte> piece(plane == 0 ? kernels::KeyPieceBytes(codec, d, block_size)
                                            : kernels::ValuePieceBytes(codec, d, block_size),
                                 std::byte{0xff});
    const auto& table = kernels_.attention->codec(codec);
    (plane == 0 ? table.encode_keys
                : table.encode_values)({rows.data(), d, count, d, piece.data(), block_size, 0});
    return piece;
  }

  // What the rows of `unit` must find of every block they see.
  void Check(int layer, const AttentionPlan::Unit& unit) {
    const SequenceRun& run = plan_.runs()[unit.run];
    const int position = run.first_position + unit.first;  // one q head per KV head
    const int last = position + unit.rows - 1;
    const BlockLookup lookup(plan_, store_, layer, unit);
    const PositionRange seen = VisibleRange(position, layout_.window(layout_.group_of(layer)));
    const int block_size = layout_.block_size();
    for (int block = seen.begin / block_size; block <= last / block_size; ++block) {
      const BlockPieces pieces = lookup(block);
      // Tokens of the block that are written by now; the last one that all rows see at least.
      const int written = std::min(block_size, run.first_position + run.rows - block * block_size);
      CheckPlane({0, layer, unit.kv_head, block, position, written}, pieces.keys, pieces.sink_keys);
      CheckPlane({1, layer, unit.kv_head, block, position, written}, pieces.values,
                 pieces.sink_values);
    }
  }

  struct Place {
    int plane;
    int layer;
    int head;
    int block;
    int position;  // of the query
    int written;
  };

  void CheckPlane(const Place& at, const std::byte* piece, const std::byte* sinks) {
    ++checked_;
    const int block_size = layout_.block_size();
    const KvCodecs codecs = layout_.codecs(at.layer);
    const KvCodec codec = at.plane == 0 ? codecs.keys : codecs.values;
    const int residual = layout_.residual_tokens();
    const bool own = residual > 0 && at.block * block_size / residual == at.position / residual;
    const auto rows = HeadRows(at.plane, at.layer, at.head, at.block, at.written);
    const auto full = Encoded(at.plane, KvCodec::kF16, rows, block_size);
    if (own) {
      ExpectF16(at, {piece, full.data(), block_size, at.written});
    } else if (at.written == block_size) {
      const int skipped = at.block == 0 && KeepsSinks(codec) ? layout_.sink_tokens() : 0;
      const auto want = residual > 0 && kernels::IsQuantized(codec)
                            ? Sealed(at.plane, codec, full, skipped)
                            : Encoded(at.plane, codec, rows, block_size);
      ASSERT_EQ(std::memcmp(piece, want.data(), want.size()), 0)
          << "block " << at.block << " seen from " << at.position << " plane " << at.plane;
    }
    ASSERT_EQ(sinks != nullptr,
              at.block == 0 && !own && KeepsSinks(codec) && layout_.sink_tokens() > 0);
    if (sinks != nullptr) CheckSinks(at, rows, sinks);
  }

  void CheckSinks(const Place& at, const std::vector<float>& rows, const std::byte* sinks) {
    const int kept = std::min(layout_.sink_tokens(), at.written);
    const std::vector<float> first(rows.begin(), rows.begin() + kept * layout_.head_dim());
    const auto want = Encoded(at.plane, KvCodec::kF16, first, kSinkBlock);
    ExpectF16(at, {sinks, want.data(), kSinkBlock, kept});
  }

  std::vector<std::byte> Sealed(int plane, KvCodec codec, const std::vector<std::byte>& full,
                                int skipped) const {
    const int d = layout_.head_dim();
    const int block_size = layout_.block_size();
    std::vector<std::byte> piece(plane == 0 ? kernels::KeyPieceBytes(codec, d, block_size)
                                            : kernels::ValuePieceBytes(codec, d, block_size));
    const auto& table = kernels_.attention->codec(codec);
    (plane == 0 ? table.seal_keys
                : table.seal_values)({full.data(), d, block_size, skipped, piece.data()});
    return piece;
  }

  struct Pieces {
    const std::byte* got;
    const std::byte* want;
    int block_size;
    int tokens;  // that are written
  };
  void ExpectF16(const Place& at, const Pieces& pieces) const {
    const int d = layout_.head_dim();
    const int runs = at.plane == 0 ? d : 1;  // keys are [head_dim, block_size]
    const size_t stride = 2u * pieces.block_size;
    const size_t bytes = at.plane == 0 ? 2u * pieces.tokens : 2u * pieces.tokens * d;
    for (int i = 0; i < runs; ++i) {
      ASSERT_EQ(std::memcmp(pieces.got + i * stride, pieces.want + i * stride, bytes), 0)
          << "block " << at.block << " seen from " << at.position << " plane " << at.plane
          << " channel " << i;
    }
  }

  KvLayout layout_;
  const kernels::KernelTable& kernels_;
  kv::KvCache cache_;
  KvStore store_;
  AttentionPlan plan_;
  base::ThreadTeam team_;
  std::optional<kv::Lease> lease_;
  int checked_ = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](KvCodec keys, KvCodec values) -> Case& {
    Case& added = cases.emplace_back();
    added.format.key_codec = keys;
    added.format.value_codec = values;
    return added;
  };
  for (KvCodec keys : kernels::kAllKvCodecs) {
    if (!kernels::IsQuantized(keys)) continue;
    add(keys, keys);
    add(keys, KvCodec::kInt4).head_dim = 80;
    add(keys, KvCodec::kF16).format.residual_tokens = 70;  // three blocks
  }
  add(KvCodec::kKivi2, KvCodec::kInt4).format.sink_tokens = 16;
  Case& layers = add(KvCodec::kKivi4, KvCodec::kKivi2);
  layers.windows = {0, 40, 40, 40};
  layers.format.layers = {{1, {KvCodec::kF16, KvCodec::kF16}},
                          {2, {KvCodec::kInt8, KvCodec::kF16}}};
  Case& small = add(KvCodec::kInt4, KvCodec::kInt4);
  small.format.block_size = 16;
  small.windows = {20, 0};
  return cases;
}

TEST(Sealing, EveryBlockIsFoundAsItWasWrittenHoweverStepsAreCut) {
  int checked = 0;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Name(c.format));
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Sequence sequence(c);
      base::CounterRng rng(seed, 7, 0);
      while (sequence.committed() < kMaxTokens) {
        const int left = kMaxTokens - sequence.committed();
        const int rows = seed == 0 ? 1 + static_cast<int>(rng.NextBelow(5))
                                   : 1 + static_cast<int>(rng.NextBelow(170));
        sequence.Step(std::min(left, rows));
        if (::testing::Test::HasFatalFailure()) return;
      }
      checked += sequence.checked();
    }
  }
  EXPECT_GT(checked, 100'000);
}

}  // namespace
}  // namespace quire::kvstore
