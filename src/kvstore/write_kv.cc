#include "kvstore/write_kv.h"

#include <algorithm>

#include "kernels/attention_kernels.h"

namespace quire::kvstore {
namespace {

// A fork and join is not worth it for less (about two microseconds of encoding).
constexpr int64_t kSerialWriteValues = 4096;

// Encodes one KV head of one write item.
void WriteItemHead(const kernels::AttentionKernels& kernels, const AttentionPlan& plan,
                   KvStore& store, const KvRows& rows, int64_t index) {
  const KvLayout& layout = plan.layout();
  int head = static_cast<int>(index % layout.kv_heads());
  const AttentionPlan::WriteItem& item = plan.writes()[index / layout.kv_heads()];
  const SequenceRun& run = plan.runs()[item.run];
  LayerPlace place = layout.place(rows.layer);
  const BlockTable& table = run.tables[place.group];
  std::byte* frame = store.frame(table.frames[item.block - table.first_block]);
  int64_t row = run.first_row + item.first;
  int64_t column = static_cast<int64_t>(head) * layout.head_dim();
  kernels::EncodeTile tile{.rows = rows.keys.row(row) + column,
                           .row_stride = rows.keys.stride,
                           .count = item.count,
                           .head_dim = layout.head_dim(),
                           .piece = frame + layout.key_offset(place.slot, head),
                           .block_size = layout.block_size(),
                           .first = (run.first_position + item.first) % layout.block_size()};
  kernels.codec(layout.format().key_codec).encode_keys(tile);
  tile.rows = rows.values.row(row) + column;
  tile.row_stride = rows.values.stride;
  tile.piece = frame + layout.value_offset(place.slot, head);
  kernels.codec(layout.format().value_codec).encode_values(tile);
}

}  // namespace

void WriteKv(const kernels::KernelTable& kernels, const AttentionPlan& plan, KvStore& store,
             const KvRows& rows, base::ThreadTeam& team) {
  const KvLayout& layout = plan.layout();
  QUIRE_CHECK_EQ(rows.keys.cols, static_cast<int64_t>(layout.kv_heads()) * layout.head_dim());
  QUIRE_CHECK_EQ(rows.values.cols, rows.keys.cols);
  int64_t items = static_cast<int64_t>(plan.writes().size()) * layout.kv_heads();
  int64_t grain = rows.keys.rows * rows.keys.cols <= kSerialWriteValues
                      ? std::max<int64_t>(items, 1)
                      : (items + 4 * team.size() - 1) / (4 * team.size());
  team.ParallelFor(items, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) WriteItemHead(*kernels.attention, plan, store, rows, i);
  });
}

}  // namespace quire::kvstore
