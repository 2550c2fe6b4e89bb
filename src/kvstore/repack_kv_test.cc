// What repacked and moved tokens are, token by token, as attention finds them.
#include "kvstore/repack_kv.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/attention_kernels.h"
#include "kernels/half.h"
#include "kernels/kv_codec_reference.h"
#include "kernels/kv_token.h"
#include "kvstore/block_lookup.h"
#include "kvstore/write_kv.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;
using kernels::Plane;

constexpr int kHeads = 2;
constexpr int kLayers = 2;
constexpr int kMaxTokens = 330;

struct Case {
  KvFormat format;
  int head_dim = 64;
};

// A token as the next query sees it, in the domain in which it is stored.
struct SeenToken {
  std::vector<double> row;  // [head_dim]
  bool f16 = false;         // tail or sink
};
using SeenPlane = std::vector<SeenToken>;  // [slots]

// A cache with two leases: a sequence as it was computed, and where it is repacked to.
class TwoLeases {
 public:
  explicit TwoLeases(const Case& c)
      : layout_(std::move(
                    KvLayout::Create({kHeads, c.head_dim, std::vector<int>(kLayers, 0)}, c.format))
                    .value()),
        kernels_(kernels::DefaultKernels()),
        cache_(Options()),
        store_(std::move(KvStore::Create(layout_, cache_.options().frames * layout_.frame_bytes()))
                   .value()),
        plan_(layout_, {.max_rows = kMaxTokens, .max_sequences = 1, .q_heads = kHeads}),
        team_(2),
        repacker_(layout_, 2) {
    std::memset(store_.frame({0}), 0xff, store_.arena_bytes());  // NaN where nothing was written
  }

  const KvLayout& layout() const { return layout_; }
  KvStore& store() { return store_; }
  kv::Lease& source() { return source_; }
  kv::Lease& target() { return target_; }

  // Computes `tokens` tokens of the source in steps of `chunk`.
  void Fill(int tokens, int chunk) {
    source_ = std::move(*cache_.Reserve(cache_.NoMatch({}), std::min(chunk, tokens)));
    while (source_.committed() < tokens) {
      const int first = source_.committed();
      const int rows = std::min(chunk, tokens - first);
      QUIRE_CHECK(cache_.Extend(source_, first + rows));
      const std::vector<BlockTable> tables = Tables(source_);
      const SequenceRun run{0, rows, first, tables};
      plan_.Build({&run, 1});
      for (int layer = 0; layer < kLayers; ++layer) {
        const std::vector<float> keys = Rows(2 * layer, first, rows);
        const std::vector<float> values = Rows(2 * layer + 1, first, rows);
        const int64_t width = static_cast<int64_t>(kHeads) * layout_.head_dim();
        base::ThreadTeam alone(1);
        WriteKv(kernels_, plan_, store_,
                {layer, {keys.data(), rows, width}, {values.data(), rows, width}}, alone);
      }
      Commit(source_, first + rows);
    }
  }

  // kept [layers * kv_heads, slots]
  void Repack(const std::vector<std::vector<int>>& kept) {
    const int slots = static_cast<int>(kept.front().size());
    target_ = std::move(*cache_.Reserve(cache_.NoMatch({}), slots));
    RepackInto(target_, kept);
    Commit(target_, slots);
  }
  void RepackInPlace(const std::vector<std::vector<int>>& kept) { RepackInto(source_, kept); }

  void Move(const std::vector<TokenMove>& moves) {
    MoveTokens(kernels_, store_, Tables(source_), moves);
  }

  // All slots of a lease as a query behind them finds them through a plan.
  SeenPlane Seen(kv::Lease& lease, int layer, int head, Plane plane) {
    const int slots = lease.committed();
    QUIRE_CHECK(cache_.Extend(lease, slots + 1));
    const std::vector<BlockTable> tables = Tables(lease);
    const SequenceRun run{0, 1, slots, tables};
    plan_.Build({&run, 1});
    AttentionPlan::Unit unit;
    unit.kv_head = head;
    unit.rows = 1;
    const BlockLookup lookup(plan_, store_, layer, unit);
    SeenPlane seen;
    for (int slot = 0; slot < slots; ++slot) {
      seen.push_back(Token(lookup(slot / layout_.block_size()), plane, slot));
    }
    cache_.Truncate(lease, slots);
    return seen;
  }

 private:
  void RepackInto(const kv::Lease& target, const std::vector<std::vector<int>>& kept) {
    std::vector<int> flat;
    for (const std::vector<int>& row : kept) flat.insert(flat.end(), row.begin(), row.end());
    const std::vector<BlockTable> from = Tables(source_);
    const std::vector<BlockTable> to = Tables(target);
    const auto rows = static_cast<int64_t>(kept.size());
    const auto slots = static_cast<int64_t>(kept.front().size());
    repacker_.Run(kernels_, store_, {from, source_.committed(), to, {flat.data(), rows, slots}},
                  team_);
  }

  kv::KvCacheOptions Options() const {
    kv::KvCacheOptions options = layout_.CacheOptions(1);
    options.prefix_caching = kv::PrefixCaching::kOff;
    options.max_leases = 2;
    options.max_lease_tokens = kMaxTokens + 1;
    options.frames = 2 * kv::KvCache::FramesForSequence(options, kMaxTokens + 1, kMaxTokens);
    return options;
  }

  std::vector<BlockTable> Tables(const kv::Lease& lease) const {
    std::vector<BlockTable> tables;
    for (int t = 0; t < layout_.table_count(); ++t) tables.push_back(TableOf(lease, t));
    return tables;
  }

  void Commit(kv::Lease& lease, int slots) {
    cache_.Commit(lease, std::vector<TokenId>(slots, 1));
    cache_.CheckInvariants();
  }

  std::vector<float> Rows(int stream, int first, int count) const {
    std::vector<float> rows;
    for (int p = first; p < first + count; ++p) {
      for (int c = 0; c < kHeads * layout_.head_dim(); ++c) {
        base::CounterRng rng(7, static_cast<uint64_t>(stream) << 32 | p, c);
        rows.push_back(static_cast<float>(rng.NextUnit() * 4.0 - 2.0) *
                       (c % 16 == 3 ? 5.0f : 1.0f));
      }
    }
    return rows;
  }

  SeenToken Token(const BlockPieces& pieces, Plane plane, int slot) const {
    const bool keys = plane == Plane::kKeys;
    int token = slot % layout_.block_size();
    kernels::PieceView view{keys ? pieces.key_codec : pieces.value_codec,
                            keys ? pieces.keys : pieces.values, layout_.head_dim(),
                            layout_.block_size()};
    const std::byte* sinks = keys ? pieces.sink_keys : pieces.sink_values;
    const bool is_sink = sinks != nullptr && slot < layout_.sink_tokens();
    if (is_sink) view = {KvCodec::kF16, sinks, layout_.head_dim(), kSinkBlock};
    SeenToken seen{{}, view.codec == KvCodec::kF16};
    for (int c = 0; c < layout_.head_dim(); ++c) {
      seen.row.push_back(keys ? kernels::DecodedKey(view, token, c)
                              : kernels::DecodedValue(view, token, c));
    }
    return seen;
  }

  KvLayout layout_;
  const kernels::KernelTable& kernels_;
  kv::KvCache cache_;
  KvStore store_;
  AttentionPlan plan_;
  base::ThreadTeam team_;
  KvRepacker repacker_;
  kv::Lease source_;
  kv::Lease target_;
};

double AsF16(double x) {
  return kernels::F32FromF16(kernels::F16FromF32(static_cast<float>(x)));
}

// A block of tokens, rounded to f16 and sealed with its first `skip` tokens left out.
SeenPlane Sealed(const kernels::TokenKind& kind, const SeenPlane& tokens, int skip) {
  const int d = kind.head_dim;
  const int n = static_cast<int>(tokens.size());
  const bool keys = kind.plane == Plane::kKeys;
  const kernels::AttentionKernels& scalar = *kernels::AttentionKernelsFor(kernels::Isa::kScalar);
  std::vector<float> rows;
  for (const SeenToken& token : tokens) rows.insert(rows.end(), token.row.begin(), token.row.end());
  std::vector<std::byte> full(2 * rows.size());
  std::vector<std::byte> piece(std::max(kernels::KeyPieceBytes(kind.codec, d, n),
                                        kernels::ValuePieceBytes(kind.codec, d, n)));
  const kernels::KvCodecKernels& f16 = scalar.codec(KvCodec::kF16);
  (keys ? f16.encode_keys : f16.encode_values)({rows.data(), d, n, d, full.data(), n, 0});
  const kernels::KvCodecKernels& codec = scalar.codec(kind.codec);
  (keys ? codec.seal_keys : codec.seal_values)({full.data(), d, n, skip, piece.data()});
  SeenPlane sealed(n);
  for (int t = 0; t < n; ++t) {
    const kernels::PieceView view{kind.codec, piece.data(), d, n};
    for (int c = 0; c < d; ++c) {
      sealed[t].row.push_back(keys ? kernels::DecodedKey(view, t, c)
                                   : kernels::DecodedValue(view, t, c));
    }
  }
  return sealed;
}

// How many tokens each way of repacking had to do with: the test must see all of them.
struct Ways {
  int exact = 0;
  int to_f16 = 0;
  int sealed = 0;
};

// Compares the target with what must come of the source's kept slots.
void CheckPlane(TwoLeases& leases, int row, Plane plane, const std::vector<int>& kept, Ways& ways) {
  const KvLayout& layout = leases.layout();
  const int layer = row / kHeads;
  const KvCodecs codecs = layout.codecs(layer);
  const KvCodec codec = plane == Plane::kKeys ? codecs.keys : codecs.values;
  const kernels::TokenKind kind{codec, plane, layout.head_dim()};
  const SeenPlane source = leases.Seen(leases.source(), layer, row % kHeads, plane);
  const SeenPlane target = leases.Seen(leases.target(), layer, row % kHeads, plane);
  ASSERT_EQ(target.size(), kept.size());
  const int n = layout.block_size();
  for (int first = 0; first < static_cast<int>(kept.size()); first += n) {
    const int end = std::min(first + n, static_cast<int>(kept.size()));
    SeenPlane tokens;
    for (int i = first; i < end; ++i) tokens.push_back(source[kept[i]]);
    const bool moved_whole = kept[first] % n == 0 && kept[end - 1] == kept[first] + n - 1 &&
                             (kept[first] == 0) == (first == 0);
    const int skip = first == 0 && KeepsSinks(codec) ? layout.sink_tokens() : 0;
    const SeenPlane sealed = layout.has_tail() && kernels::IsQuantized(codec) && end - first == n
                                 ? Sealed(kind, tokens, skip)
                                 : SeenPlane();
    for (int i = first; i < end; ++i) {
      const SeenToken& from = tokens[i - first];
      std::vector<double> want = from.row;
      const bool alone = kernels::StoresTokensAlone(codec, plane);
      if (target[i].f16 && !from.f16) {
        for (double& x : want) x = AsF16(x);
        ++ways.to_f16;
      } else if (!target[i].f16 && !(moved_whole && !from.f16) && (from.f16 || !alone)) {
        ASSERT_FALSE(sealed.empty());
        want = sealed[i - first].row;
        ++ways.sealed;
      } else {
        ++ways.exact;
      }
      ASSERT_EQ(target[i].row, want) << "row " << row << " plane " << static_cast<int>(plane)
                                     << " slot " << i << " from " << kept[i];
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](KvCodec keys, KvCodec values) -> Case& {
    Case& added = cases.emplace_back();
    added.format.key_codec = keys;
    added.format.value_codec = values;
    return added;
  };
  for (KvCodec codec : kernels::kAllKvCodecs) add(codec, codec);
  for (KvCodec codec : {KvCodec::kInt8, KvCodec::kFp8E4M3, KvCodec::kKivi2}) {
    add(codec, KvCodec::kInt4).head_dim = 80;
    add(codec, KvCodec::kF16).format.residual_tokens = 70;  // three blocks
  }
  add(KvCodec::kInt4, KvCodec::kInt4).format.residual_tokens = 0;
  add(KvCodec::kInt4, KvCodec::kBf16).format.residual_tokens = 0;
  add(KvCodec::kInt8, KvCodec::kInt8).format.residual_tokens = 32;
  add(KvCodec::kKivi2, KvCodec::kInt4).format.sink_tokens = 16;
  add(KvCodec::kKivi4, KvCodec::kKivi4).format.sink_tokens = 0;
  add(KvCodec::kKivi4, KvCodec::kKivi4).format.block_size = 64;
  Case& small = add(KvCodec::kInt4, KvCodec::kKivi4);
  small.format.block_size = 64;
  small.format.layers = {{1, {KvCodec::kF16, KvCodec::kInt8}}};
  Case& sixteen = add(KvCodec::kInt4, KvCodec::kInt4);
  sixteen.format.block_size = 16;
  sixteen.format.rotation = KvRotation::kNone;
  return cases;
}

// `count` ascending slots of [0, slots): the first and the last few, and others at random.
std::vector<int> RandomKept(int slots, int count, base::CounterRng& rng) {
  std::vector<int> kept;
  for (int slot = 0; slot < slots; ++slot) {
    const int left = count - static_cast<int>(kept.size());
    const bool must = left >= slots - slot;
    // Long stretches, so that whole blocks are kept too.
    const bool wants =
        kept.empty() || kept.back() + 1 < slot ? rng.NextBelow(40) == 0 : rng.NextBelow(150) != 0;
    if (left > 0 && (must || wants)) kept.push_back(slot);
  }
  return kept;
}

TEST(RepackKv, EveryKeptTokenIsFoundInItsNewSlotInEveryCodec) {
  Ways ways;
  for (const Case& c : Cases()) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", Name(c.format), seed));
      base::CounterRng rng(seed, 5, 0);
      const int tokens = 1 + static_cast<int>(rng.NextBelow(kMaxTokens));
      const int slots = 1 + static_cast<int>(rng.NextBelow(tokens));
      TwoLeases leases(c);
      leases.Fill(tokens, 1 + static_cast<int>(rng.NextBelow(100)));
      std::vector<std::vector<int>> kept;
      for (int row = 0; row < kLayers * kHeads; ++row) {
        kept.push_back(RandomKept(tokens, slots, rng));
      }
      const auto bytes = [&] {  // of the source
        std::vector<std::byte> all;
        for (int t = 0; t < leases.layout().table_count(); ++t) {
          for (const auto frames : {leases.source().frames(t), leases.source().tail(t).frames}) {
            for (FrameId id : frames) {
              const std::byte* frame = leases.store().frame(id);
              all.insert(all.end(), frame, frame + leases.layout().frame_bytes());
            }
          }
        }
        return all;
      };
      const std::vector<std::byte> before = bytes();
      leases.Repack(kept);
      EXPECT_TRUE(before == bytes());
      for (int row = 0; row < kLayers * kHeads; ++row) {
        CheckPlane(leases, row, Plane::kKeys, kept[row], ways);
        CheckPlane(leases, row, Plane::kValues, kept[row], ways);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(ways.exact, 10'000);
  EXPECT_GT(ways.to_f16, 2'000);
  EXPECT_GT(ways.sealed, 10'000);
}

// What becomes of a lease's own first slots is what another would have got.
TEST(RepackKv, InPlaceGivesWhatAnotherLeaseWouldHold) {
  for (const Case& c : Cases()) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", Name(c.format), seed));
      base::CounterRng rng(seed, 6, 0);
      TwoLeases apart(c);
      TwoLeases in_place(c);
      const KvLayout& layout = apart.layout();
      const int unit = std::max(1, layout.residual_tokens());
      const int tokens = kMaxTokens / unit * unit;
      const int slots = unit * (1 + static_cast<int>(rng.NextBelow(tokens / unit)));
      const int sinks = layout.sink_tokens();
      std::vector<std::vector<int>> kept;
      for (int row = 0; row < kLayers * kHeads; ++row) {
        std::vector<int>& own = kept.emplace_back();
        for (int i = 0; i < std::min(sinks, slots); ++i) own.push_back(i);
        if (slots <= sinks) continue;
        for (int slot : RandomKept(tokens - sinks, slots - sinks, rng)) own.push_back(sinks + slot);
      }
      apart.Fill(tokens, 40);
      apart.Repack(kept);
      in_place.Fill(tokens, 40);
      in_place.RepackInPlace(kept);
      for (int row = 0; row < kLayers * kHeads; ++row) {
        for (const Plane plane : {Plane::kKeys, Plane::kValues}) {
          const int layer = row / kHeads;
          const int head = row % kHeads;
          const SeenPlane want = apart.Seen(apart.target(), layer, head, plane);
          const SeenPlane have = in_place.Seen(in_place.source(), layer, head, plane);
          for (int i = 0; i < slots; ++i) {
            ASSERT_EQ(have[i].row, want[i].row) << "row " << row << " slot " << i;
          }
        }
      }
    }
  }
}

TEST(RepackKv, KeepingEverythingLosesNothing) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Name(c.format));
    TwoLeases leases(c);
    leases.Fill(300, 300);
    std::vector<int> all(300);
    for (int i = 0; i < 300; ++i) all[i] = i;
    leases.Repack(std::vector<std::vector<int>>(kLayers * kHeads, all));
    for (int row = 0; row < kLayers * kHeads; ++row) {
      for (Plane plane : {Plane::kKeys, Plane::kValues}) {
        const SeenPlane source = leases.Seen(leases.source(), row / kHeads, row % kHeads, plane);
        const SeenPlane target = leases.Seen(leases.target(), row / kHeads, row % kHeads, plane);
        for (int i = 0; i < 300; ++i) ASSERT_EQ(source[i].row, target[i].row) << "slot " << i;
      }
    }
  }
}

TEST(MoveTokens, ReplaceASlotByAnotherInOneLayerAndHeadAlone) {
  for (const Case& c : Cases()) {
    TwoLeases leases(c);
    if (leases.layout().has_tail()) continue;
    SCOPED_TRACE(Name(c.format));
    leases.Fill(200, 200);
    base::CounterRng rng(1, 2, 3);
    std::vector<TokenMove> moves;
    for (int i = 0; i < 100; ++i) {
      moves.push_back({.layer = static_cast<int>(rng.NextBelow(kLayers)),
                       .kv_head = static_cast<int>(rng.NextBelow(kHeads)),
                       .from = 20 + static_cast<int>(rng.NextBelow(180)),
                       .to = static_cast<int>(rng.NextBelow(i < 20 ? 4 : 200))});
    }
    std::vector<SeenPlane> want;
    for (int row = 0; row < kLayers * kHeads; ++row) {
      for (Plane plane : {Plane::kKeys, Plane::kValues}) {
        SeenPlane& seen =
            want.emplace_back(leases.Seen(leases.source(), row / kHeads, row % kHeads, plane));
        for (const TokenMove& move : moves) {
          if (move.layer * kHeads + move.kv_head != row) continue;
          const bool f16 = seen[move.to].f16;
          const bool round = f16 && !seen[move.from].f16;
          seen[move.to] = seen[move.from];
          seen[move.to].f16 = f16;
          for (double& x : seen[move.to].row) x = round ? AsF16(x) : x;
        }
      }
    }
    leases.Move(moves);
    for (int row = 0; row < kLayers * kHeads; ++row) {
      for (Plane plane : {Plane::kKeys, Plane::kValues}) {
        const SeenPlane got = leases.Seen(leases.source(), row / kHeads, row % kHeads, plane);
        const SeenPlane& expected = want[2 * row + (plane == Plane::kKeys ? 0 : 1)];
        for (int i = 0; i < 200; ++i) ASSERT_EQ(got[i].row, expected[i].row) << "slot " << i;
      }
    }
  }
}

}  // namespace
}  // namespace quire::kvstore
