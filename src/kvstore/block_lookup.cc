#include "kvstore/block_lookup.h"

namespace quire::kvstore {

BlockLookup::BlockLookup(const AttentionPlan& plan, const KvStore& store, int layer,
                         const AttentionPlan::Unit& unit)
    : plan_(plan),
      store_(store),
      layout_(plan.layout()),
      run_(plan.runs()[unit.run]),
      table_(run_.tables[layout_.group_of(layer)]),
      codecs_(layout_.codecs(layer)),
      layer_(layer),
      run_index_(unit.run),
      kv_head_(unit.kv_head),
      key_offset_(layout_.key_offset(layer, unit.kv_head)),
      value_offset_(layout_.value_offset(layer, unit.kv_head)) {
  if (!layout_.has_tail()) return;
  const int group_blocks = layout_.residual_tokens() / layout_.block_size();
  const int position = run_.first_position + unit.first / plan.group_size();
  own_begin_ = position / layout_.residual_tokens() * group_blocks;
  own_end_ = own_begin_ + group_blocks;
}

BlockPieces BlockLookup::operator()(int block) const {
  if (block >= own_begin_ && block < own_end_) {
    const AttentionPlan::FullPlace place = plan_.full_place(run_index_, block, layer_, kv_head_);
    const std::byte* base = place.frame ? store_.frame(*place.frame) : plan_.staging();
    return {.keys = base + place.keys, .values = base + place.values};
  }
  const std::byte* frame = store_.frame(table_.frames[block - table_.first_block]);
  BlockPieces pieces{.keys = frame + key_offset_,
                     .values = frame + value_offset_,
                     .key_codec = codecs_.keys,
                     .value_codec = codecs_.values};
  if (block > 0 || layout_.sink_tokens() == 0) return pieces;
  const FramePlace place = SinkPieces(layout_, {run_.tables, layer_, kv_head_});
  const std::byte* sink_frame = store_.frame(place.frame);
  if (KeepsSinks(codecs_.keys)) pieces.sink_keys = sink_frame + place.keys;
  if (KeepsSinks(codecs_.values)) pieces.sink_values = sink_frame + place.values;
  return pieces;
}

}  // namespace quire::kvstore
