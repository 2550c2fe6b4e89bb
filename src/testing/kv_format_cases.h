// The KV formats over which every equality is tested: all codecs, codecs mixed over keys, values
// and layers, with and without tail and sinks, in all block sizes.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kvstore/kv_format.h"

namespace quire::testing {

struct KvFormatCase {
  std::string name;
  kvstore::KvFormat format;
};

inline std::ostream& operator<<(std::ostream& out, const KvFormatCase& c) {
  return out << c.name;
}

// For models of at least two layers. Quantised ones only: f32, f16 and bf16 have tests of their
// own.
inline std::vector<KvFormatCase> QuantizedKvFormats() {
  using kernels::KvCodec;
  using kvstore::KvFormat;
  std::vector<KvFormatCase> cases;
  const auto add = [&](std::string name, KvCodec keys, KvCodec values) -> KvFormat& {
    cases.push_back({std::move(name), {.key_codec = keys, .value_codec = values}});
    return cases.back().format;
  };
  for (KvCodec codec : kernels::kAllKvCodecs) {
    if (kernels::IsQuantized(codec)) add(std::string(Name(codec)), codec, codec);
  }
  add("fp8_block16", KvCodec::kFp8E4M3, KvCodec::kFp8E4M3).block_size = 16;
  KvFormat& row_by_row = add("int4_block16_residual0", KvCodec::kInt4, KvCodec::kInt4);
  row_by_row.block_size = 16;
  row_by_row.residual_tokens = 0;
  add("kivi4_block64", KvCodec::kKivi4, KvCodec::kKivi4).block_size = 64;
  add("int8_int4", KvCodec::kInt8, KvCodec::kInt4);
  add("kivi4_f16", KvCodec::kKivi4, KvCodec::kF16);
  add("f16_kivi2", KvCodec::kF16, KvCodec::kKivi2);
  add("int4_fp8", KvCodec::kInt4, KvCodec::kFp8E4M3);
  add("int8_residual32", KvCodec::kInt8, KvCodec::kInt8).residual_tokens = 32;
  add("int4_residual0", KvCodec::kInt4, KvCodec::kInt4).residual_tokens = 0;
  add("int4_residual128", KvCodec::kInt4, KvCodec::kInt4).residual_tokens = 128;
  add("kivi4_residual0", KvCodec::kKivi4, KvCodec::kKivi4).residual_tokens = 0;
  add("kivi2_residual32", KvCodec::kKivi2, KvCodec::kKivi2).residual_tokens = 32;
  add("int4_sinks0", KvCodec::kInt4, KvCodec::kInt4).sink_tokens = 0;
  add("int4_sinks16", KvCodec::kInt4, KvCodec::kInt4).sink_tokens = 16;
  add("kivi2_sinks0", KvCodec::kKivi2, KvCodec::kKivi2).sink_tokens = 0;
  add("kivi2_skip0", KvCodec::kKivi2, KvCodec::kKivi2).layers = {
      {0, {KvCodec::kF16, KvCodec::kF16}}};
  add("layers", KvCodec::kInt4, KvCodec::kKivi2).layers = {
      {0, {KvCodec::kInt8, KvCodec::kFp8E5M2}}};
  return cases;
}

}  // namespace quire::testing
