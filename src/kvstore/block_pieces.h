// Where the pieces of one KV head's blocks lie in one layer, by a sequence's block tables.
#pragma once

#include <optional>
#include <span>

#include "base/ids.h"
#include "kv/kv_cache.h"
#include "kvstore/kv_layout.h"

namespace quire::kvstore {

// frames[i] holds block first_block + i of the sequence. Windowed groups drop leading blocks. With
// residual groups: blocks of groups that are sealed when the step ends; the others have a tail.
struct BlockTable {
  int first_block = 0;
  std::span<const FrameId> frames;
  kv::TailView tail = {};
};

inline BlockTable TableOf(const kv::Lease& lease, int table) {
  return {lease.first_block(table), lease.frames(table), lease.tail(table)};
}

// A KV head of a sequence in one layer.
struct SequenceHead {
  std::span<const BlockTable> tables;  // [layout.table_count()]
  int layer = 0;
  int kv_head = 0;
};

// A pair of pieces.
struct FramePlace {
  FrameId frame;
  size_t keys = 0;  // offsets in the frame
  size_t values = 0;
};

// As the layer's codecs store them.
FramePlace BodyPieces(const KvLayout& layout, const SequenceHead& head, int block);

// In f16, of a block that is not sealed. nullopt: it is in no tail frame.
std::optional<FramePlace> TailPieces(const KvLayout& layout, const SequenceHead& head, int block);

// Of the first layout.sink_tokens() tokens, in f16; of a layout that has sinks.
FramePlace SinkPieces(const KvLayout& layout, const SequenceHead& head);

}  // namespace quire::kvstore
