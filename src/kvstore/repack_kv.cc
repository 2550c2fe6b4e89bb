#include "kvstore/repack_kv.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_kernels.h"
#include "kernels/kv_pieces.h"
#include "kernels/kv_token.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;
using kernels::Plane;
using kernels::TokenTarget;

// The keys or the values of one KV head of a sequence, slot by slot.
class PlaneSlots {
 public:
  struct Context {
    const kernels::AttentionKernels& kernels;
    KvStore& store;
    Plane plane;
  };
  // A token as it is stored somewhere.
  struct Stored {
    KvCodec codec;
    TokenTarget at;
  };

  // `slots`: how many the sequence has.
  PlaneSlots(const Context& context, const SequenceHead& head, int slots)
      : context_(context),
        layout_(context.store.layout()),
        head_(head),
        codec_(context.plane == Plane::kKeys ? layout_.codecs(head.layer).keys
                                             : layout_.codecs(head.layer).values),
        sealed_end_(layout_.has_tail()
                        ? slots / layout_.residual_tokens() * layout_.residual_tokens()
                        : slots),
        sinks_(KeepsSinks(codec_) ? layout_.sink_tokens() : 0) {}

  KvCodec codec() const { return codec_; }
  int sealed_end() const { return sealed_end_; }
  int sinks() const { return sinks_; }  // that this plane keeps apart

  std::byte* BodyPiece(int block) const { return Piece(BodyPieces(layout_, head_, block)); }

  TokenTarget InBody(int slot) const { return {BodyPiece(Block(slot)), block_size(), Token(slot)}; }
  TokenTarget InTail(int slot) const {
    const std::optional<FramePlace> place = TailPieces(layout_, head_, Block(slot));
    QUIRE_CHECK(place.has_value());
    return {Piece(*place), block_size(), Token(slot)};
  }
  TokenTarget InSinks(int slot) const {
    return {Piece(SinkPieces(layout_, head_)), kSinkBlock, slot};
  }

  // In the precision in which queries see it.
  Stored Seen(int slot) const {
    if (slot >= sealed_end_) return {KvCodec::kF16, InTail(slot)};
    if (slot < sinks_) return {KvCodec::kF16, InSinks(slot)};
    return {codec_, InBody(slot)};
  }

  void Copy(KvCodec codec, const TokenTarget& from, const TokenTarget& to) const {
    kernels::CopyToken({codec, context_.plane, layout_.head_dim()},
                       {from.piece, from.block_size, from.token}, to);
  }
  void CopyAsF16(const Stored& from, const TokenTarget& to) const {
    if (from.codec == KvCodec::kF16) return Copy(KvCodec::kF16, from.at, to);
    const int d = layout_.head_dim();
    float row[kernels::kMaxHeadDim];
    kernels::DecodeToken({from.codec, context_.plane, d},
                         {from.at.piece, from.at.block_size, from.at.token}, row);
    const kernels::KvCodecKernels& f16 = context_.kernels.codec(KvCodec::kF16);
    (context_.plane == Plane::kKeys ? f16.encode_keys
                                    : f16.encode_values)({.rows = row,
                                                          .row_stride = d,
                                                          .count = 1,
                                                          .head_dim = d,
                                                          .piece = to.piece,
                                                          .block_size = to.block_size,
                                                          .first = to.token});
  }

 private:
  int block_size() const { return layout_.block_size(); }
  int Block(int slot) const { return slot / block_size(); }
  int Token(int slot) const { return slot % block_size(); }
  std::byte* Piece(const FramePlace& place) const {
    return context_.store.frame(place.frame) +
           (context_.plane == Plane::kKeys ? place.keys : place.values);
  }

  const Context& context_;
  const KvLayout& layout_;
  SequenceHead head_;
  KvCodec codec_;
  int sealed_end_;
  int sinks_;
};

// Repacks one plane of one layer and KV head.
class PlaneRepacker {
 public:
  // A block's f16 piece, and a piece as it was before it is written.
  struct Scratch {
    std::byte* full = nullptr;
    std::byte* before = nullptr;
  };
  PlaneRepacker(const PlaneSlots::Context& context, const Repack& repack, int row,
                const Scratch& scratch)
      : context_(context),
        layout_(context.store.layout()),
        layer_(row / layout_.kv_heads()),
        kept_(repack.kept.row(row), static_cast<size_t>(repack.kept.cols)),
        from_(context, {repack.from, layer_, row % layout_.kv_heads()}, repack.from_slots),
        to_(context, {repack.to, layer_, row % layout_.kv_heads()},
            static_cast<int>(repack.kept.cols)),
        scratch_(scratch) {}

  void Run() {
    const int slots = static_cast<int>(kept_.size());
    for (int first = 0; first < slots; first += layout_.block_size()) {
      const int end = std::min(slots, first + layout_.block_size());
      if (first < to_.sealed_end()) {
        PackBody(first, end);
      } else {
        for (int i = first; i < end; ++i) to_.CopyAsF16(from_.Seen(kept_[i]), to_.InTail(i));
      }
    }
  }

 private:
  bool keys() const { return context_.plane == Plane::kKeys; }
  size_t PieceBytes() const {
    return keys() ? layout_.key_bytes(layer_) : layout_.value_bytes(layer_);
  }
  bool StoresAlone() const { return kernels::StoresTokensAlone(to_.codec(), context_.plane); }

  // Slots [first, end) of one block that is sealed, or encoded as it is written.
  void PackBody(int first, int end) {
    if (IsWholeBlock(first, end)) {
      std::memmove(to_.BodyPiece(first / layout_.block_size()),
                   from_.BodyPiece(kept_[first] / layout_.block_size()), PieceBytes());
    } else if (layout_.has_tail() && !HasCodesOfAll(first, end)) {
      Seal(first, end);
    } else {
      for (int i = first; i < end; ++i) {
        to_.Copy(to_.codec(), BodyOrTail(kept_[i]), to_.InBody(i));
      }
    }
    for (int i = first; i < std::min(end, to_.sinks()); ++i) {
      to_.CopyAsF16(from_.Seen(kept_[i]), to_.InSinks(i));
    }
  }

  // Whether one whole sealed block of the source becomes a block here. Block 0 of a plane that
  // keeps sinks is like no other: its scales may not count them.
  bool IsWholeBlock(int first, int end) const {
    const int n = layout_.block_size();
    const int begin = kept_[first];
    return end - first == n && begin % n == 0 && kept_[end - 1] == begin + n - 1 &&
           begin + n <= from_.sealed_end() && (to_.sinks() == 0 || (begin == 0) == (first == 0));
  }

  // Whether every token's codes can be had, those of sinks too, which a sealed block lacks.
  bool HasCodesOfAll(int first, int end) const {
    if (!StoresAlone()) return false;
    if (!kernels::IsQuantized(to_.codec())) return true;  // f16, in the tail as well
    return kept_[end - 1] < from_.sealed_end() && first >= to_.sinks();
  }

  TokenTarget BodyOrTail(int slot) const {
    return slot < from_.sealed_end() ? from_.InBody(slot) : from_.InTail(slot);
  }

  // Seals the block from f16, then puts back the codes of tokens that have some.
  void Seal(int first, int end) {
    const int n = layout_.block_size();
    for (int i = first; i < end; ++i) {
      to_.CopyAsF16(from_.Seen(kept_[i]), {scratch_.full, n, i - first});
    }
    const kernels::KvCodecKernels& codec = context_.kernels.codec(to_.codec());
    const int skip = first == 0 ? to_.sinks() : 0;
    // In place: codes that are put back may be those of this block.
    std::byte* const piece = to_.BodyPiece(first / n);
    if (StoresAlone()) std::memcpy(scratch_.before, piece, PieceBytes());
    (keys() ? codec.seal_keys
            : codec.seal_values)({scratch_.full, layout_.head_dim(), n, skip, piece});
    if (!StoresAlone()) return;
    for (int i = first + skip; i < end; ++i) {
      PlaneSlots::Stored seen = from_.Seen(kept_[i]);
      if (seen.codec != to_.codec()) continue;
      if (seen.at.piece == piece) seen.at.piece = scratch_.before;
      to_.Copy(seen.codec, seen.at, to_.InBody(i));
    }
  }

  const PlaneSlots::Context& context_;
  const KvLayout& layout_;
  int layer_;
  std::span<const int> kept_;  // [slots]
  PlaneSlots from_;
  PlaneSlots to_;
  Scratch scratch_;
};

void CheckRepack(const KvLayout& layout, const Repack& repack) {
  QUIRE_CHECK_EQ(static_cast<int>(repack.from.size()), layout.table_count());
  QUIRE_CHECK_EQ(static_cast<int>(repack.to.size()), layout.table_count());
  QUIRE_CHECK_EQ(repack.kept.rows, static_cast<int64_t>(layout.layers()) * layout.kv_heads());
  for (int64_t row = 0; row < repack.kept.rows; ++row) {
    const std::span<const int> kept(repack.kept.row(row), static_cast<size_t>(repack.kept.cols));
    if (kept.empty()) continue;
    QUIRE_CHECK(kept.front() >= 0 && kept.back() < repack.from_slots);
    const auto ascends = [](int a, int b) { return a >= b; };
    QUIRE_CHECK(std::ranges::adjacent_find(kept, ascends) == kept.end());
  }
}

}  // namespace

KvRepacker::KvRepacker(const KvLayout& layout, int threads)
    : full_bytes_(
          std::max(layout.full_key_bytes(), layout.full_pair_bytes() - layout.full_key_bytes())),
      threads_(threads),
      scratch_(Buffer::AllocateOrThrow(2 * full_bytes_ * threads)) {}

void KvRepacker::Run(const kernels::KernelTable& kernels, KvStore& store, const Repack& repack,
                     base::ThreadTeam& team) {
  QUIRE_CHECK_LE(team.size(), threads_);
  CheckRepack(store.layout(), repack);
  team.ParallelFor(repack.kept.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    std::byte* full = scratch_.data() + 2 * thread * full_bytes_;
    for (int64_t row = begin; row < end; ++row) {
      for (const Plane plane : {Plane::kKeys, Plane::kValues}) {
        const PlaneSlots::Context context{*kernels.attention, store, plane};
        PlaneRepacker(context, repack, static_cast<int>(row), {full, full + full_bytes_}).Run();
      }
    }
  });
}

void MoveTokens(const kernels::KernelTable& kernels, KvStore& store,
                std::span<const BlockTable> tables, std::span<const TokenMove> moves) {
  QUIRE_CHECK(!store.layout().has_tail());
  for (const TokenMove& move : moves) {
    for (const Plane plane : {Plane::kKeys, Plane::kValues}) {
      const PlaneSlots::Context context{*kernels.attention, store, plane};
      const int slots = std::max(move.from, move.to) + 1;
      const PlaneSlots head(context, {tables, move.layer, move.kv_head}, slots);
      if (move.to < head.sinks()) head.CopyAsF16(head.Seen(move.from), head.InSinks(move.to));
      head.Copy(head.codec(), head.InBody(move.from), head.InBody(move.to));
    }
  }
}

}  // namespace quire::kvstore
