#include "kvstore/block_pieces.h"

#include <algorithm>

namespace quire::kvstore {

FramePlace BodyPieces(const KvLayout& layout, const SequenceHead& head, int block) {
  const BlockTable& table = head.tables[layout.group_of(head.layer)];
  return {table.frames[block - table.first_block], layout.key_offset(head.layer, head.kv_head),
          layout.value_offset(head.layer, head.kv_head)};
}

std::optional<FramePlace> TailPieces(const KvLayout& layout, const SequenceHead& head, int block) {
  const kv::TailView& tail = head.tables[layout.group_of(head.layer)].tail;
  const auto found = std::ranges::lower_bound(tail.blocks, block);
  if (found == tail.blocks.end() || *found != block) return std::nullopt;
  const PairPlace place = layout.tail_place(head.layer, head.kv_head);
  const auto first = (found - tail.blocks.begin()) * layout.tail_frames();
  return FramePlace{tail.frames[first + place.frame], place.keys, place.values};
}

FramePlace SinkPieces(const KvLayout& layout, const SequenceHead& head) {
  const PairPlace place = layout.sink_place(head.layer, head.kv_head);
  const int table = layout.sink_table(layout.group_of(head.layer), place.frame);
  return {head.tables[table].frames.front(), place.keys, place.values};
}

}  // namespace quire::kvstore
