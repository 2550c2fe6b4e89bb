#include "kvstore/write_kv.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_kernels.h"

namespace quire::kvstore {
namespace {

using kernels::EncodeTile;
using kernels::KvCodec;

// A fork and join is not worth it for less (about two microseconds of encoding).
constexpr int64_t kSerialWriteValues = 4096;

using Encode = void (*)(const EncodeTile&);

// Writes one write item of one KV head in one layer.
class ItemWriter {
 public:
  struct Context {
    const kernels::AttentionKernels& kernels;
    AttentionPlan& plan;
    KvStore& store;
    const KvRows& rows;
  };

  ItemWriter(const Context& context, const AttentionPlan::WriteItem& item, int head, int thread)
      : kernels_(context.kernels),
        plan_(context.plan),
        store_(context.store),
        rows_(context.rows),
        item_(item),
        layout_(plan_.layout()),
        run_(plan_.runs()[item.run]),
        place_(layout_.place(rows_.layer)),
        codecs_(layout_.codecs(rows_.layer)),
        rotates_keys_(layout_.format().rotates_keys(rows_.layer)),
        rotates_values_(layout_.format().rotates_values(rows_.layer)),
        head_(head),
        rotated_(plan_.scratch(thread).total.out) {}

  void Write() {
    if (!layout_.has_tail()) {
      const FramePlace body = Body();
      WriteKeys(codecs_.keys, store_.frame(body.frame) + body.keys, layout_.block_size());
      WriteValues(codecs_.values, store_.frame(body.frame) + body.values, layout_.block_size());
      WriteSinks();
      return;
    }
    const bool sealed = item_.seal == AttentionPlan::Seal::kYes;
    // A block that left the window before its group was complete is of no use to anybody.
    if (item_.block < table().first_block) return;
    const auto place = plan_.full_place(item_.run, item_.block, rows_.layer, head_);
    std::byte* base = place.frame ? store_.frame(*place.frame) : plan_.staging();
    if (item_.count > 0) {
      WriteKeys(KvCodec::kF16, base + place.keys, layout_.block_size());
      WriteValues(KvCodec::kF16, base + place.values, layout_.block_size());
    }
    if (!sealed) return;
    SealKeys(base + place.keys);
    SealValues(base + place.values);
  }

 private:
  const BlockTable& table() const { return run_.tables[place_.group]; }
  SequenceHead head() const { return {run_.tables, rows_.layer, head_}; }
  FramePlace Body() const { return BodyPieces(layout_, head(), item_.block); }

  bool HasSinks() const { return layout_.sink_tokens() > 0 && item_.block == 0; }
  int SinksOf(KvCodec codec) const {
    return HasSinks() && KeepsSinks(codec) ? layout_.sink_tokens() : 0;
  }

  EncodeTile Tile(const MatrixView<const float>& rows, std::byte* piece, int block_size) const {
    const int64_t column = static_cast<int64_t>(head_) * layout_.head_dim();
    return {.rows = rows.row(run_.first_row + item_.first) + column,
            .row_stride = rows.stride,
            .count = item_.count,
            .head_dim = layout_.head_dim(),
            .piece = piece,
            .block_size = block_size,
            .first = (run_.first_position + item_.first) % layout_.block_size()};
  }
  void WriteKeys(KvCodec codec, std::byte* piece, int block_size) {
    EncodeRows(rotates_keys_, kernels_.codec(codec).encode_keys,
               Tile(rows_.keys, piece, block_size));
  }
  void WriteValues(KvCodec codec, std::byte* piece, int block_size) {
    EncodeRows(rotates_values_, kernels_.codec(codec).encode_values,
               Tile(rows_.values, piece, block_size));
  }

  // Everything that a layer stores of a plane is rotated if its codec rotates: tail and sinks too.
  void EncodeRows(bool rotates, Encode encode, EncodeTile tile) {
    if (!rotates) return encode(tile);
    const EncodeTile all = tile;
    for (int done = 0; done < all.count; done += tile.count) {
      tile.count = std::min(kRowBlock, all.count - done);
      tile.first = all.first + done;
      for (int r = 0; r < tile.count; ++r) {
        float* row = rotated_ + static_cast<ptrdiff_t>(r) * tile.head_dim;
        std::memcpy(row, all.rows + (done + r) * all.row_stride, sizeof(float) * tile.head_dim);
        kernels_.rotate(row, tile.head_dim);
      }
      tile.rows = rotated_;
      tile.row_stride = tile.head_dim;
      encode(tile);
    }
  }

  // New rows among the first tokens of a sequence, in f16.
  void WriteSinks() {
    if (!HasSinks()) return;
    const FramePlace place = SinkPieces(layout_, head());
    std::byte* frame = store_.frame(place.frame);
    const KvCodec f16 = KvCodec::kF16;
    EncodeTile keys = Tile(rows_.keys, frame + place.keys, kSinkBlock);
    keys.count = std::min(keys.count, SinksOf(codecs_.keys) - keys.first);
    if (keys.count > 0) EncodeRows(rotates_keys_, kernels_.codec(f16).encode_keys, keys);
    EncodeTile values = Tile(rows_.values, frame + place.values, kSinkBlock);
    values.count = std::min(values.count, SinksOf(codecs_.values) - values.first);
    if (values.count > 0) EncodeRows(rotates_values_, kernels_.codec(f16).encode_values, values);
  }

  void SealKeys(const std::byte* from) {
    std::byte* piece = store_.frame(Body().frame) + Body().keys;
    const int sinks = SinksOf(codecs_.keys);
    if (!kernels::IsQuantized(codecs_.keys)) {
      std::memcpy(piece, from, layout_.key_bytes(rows_.layer));  // f16 as well
      return;
    }
    kernels_.codec(codecs_.keys)
        .seal_keys({from, layout_.head_dim(), layout_.block_size(), sinks, piece});
    if (sinks == 0) return;
    const FramePlace place = SinkPieces(layout_, head());
    std::byte* to = store_.frame(place.frame) + place.keys;
    const size_t row = kernels::KeyPieceBytes(KvCodec::kF16, 1, layout_.block_size());
    const size_t sink_row = kernels::KeyPieceBytes(KvCodec::kF16, 1, kSinkBlock);
    const size_t used = kernels::KeyPieceBytes(KvCodec::kF16, 1, sinks);
    for (int c = 0; c < layout_.head_dim(); ++c) {
      std::memcpy(to + c * sink_row, from + c * row, used);
    }
  }

  void SealValues(const std::byte* from) {
    std::byte* piece = store_.frame(Body().frame) + Body().values;
    const int sinks = SinksOf(codecs_.values);
    if (!kernels::IsQuantized(codecs_.values)) {
      std::memcpy(piece, from, layout_.value_bytes(rows_.layer));
      return;
    }
    kernels_.codec(codecs_.values)
        .seal_values({from, layout_.head_dim(), layout_.block_size(), sinks, piece});
    if (sinks == 0) return;
    const FramePlace place = SinkPieces(layout_, head());
    std::memcpy(store_.frame(place.frame) + place.values, from,
                kernels::ValuePieceBytes(KvCodec::kF16, layout_.head_dim(), sinks));
  }

  const kernels::AttentionKernels& kernels_;
  AttentionPlan& plan_;
  KvStore& store_;
  const KvRows& rows_;
  const AttentionPlan::WriteItem& item_;
  const KvLayout& layout_;
  const SequenceRun& run_;
  LayerPlace place_;
  KvCodecs codecs_;
  bool rotates_keys_;
  bool rotates_values_;
  int head_;
  float* rotated_;  // [kRowBlock, head_dim]
};

}  // namespace

void WriteKv(const kernels::KernelTable& kernels, AttentionPlan& plan, KvStore& store,
             const KvRows& rows, base::ThreadTeam& team) {
  const KvLayout& layout = plan.layout();
  QUIRE_CHECK_LE(team.size(), plan.threads());
  QUIRE_CHECK_EQ(rows.keys.cols, static_cast<int64_t>(layout.kv_heads()) * layout.head_dim());
  QUIRE_CHECK_EQ(rows.values.cols, rows.keys.cols);
  const int heads = layout.kv_heads();
  const ItemWriter::Context context{*kernels.attention, plan, store, rows};
  int64_t items = static_cast<int64_t>(plan.writes().size()) * heads;
  int64_t grain = rows.keys.rows * rows.keys.cols <= kSerialWriteValues
                      ? std::max<int64_t>(items, 1)
                      : (items + 4 * team.size() - 1) / (4 * team.size());
  team.ParallelFor(items, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      ItemWriter(context, plan.writes()[i / heads], static_cast<int>(i % heads), thread).Write();
    }
  });
}

}  // namespace quire::kvstore
