#include "kvstore/kv_format.h"

#include <algorithm>

#include "base/function_ref.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

std::optional<KvCodec> FindCodec(const KvFormat& format, int layers,
                                 base::FunctionRef<bool(KvCodec)> wanted) {
  for (int layer = 0; layer < layers; ++layer) {
    const KvCodecs codecs = format.codecs(layer);
    if (wanted(codecs.keys)) return codecs.keys;
    if (wanted(codecs.values)) return codecs.values;
  }
  return std::nullopt;
}

constexpr auto kIsKivi = [](KvCodec codec) {
  return codec == KvCodec::kKivi4 || codec == KvCodec::kKivi2;
};
constexpr auto kIsInt4 = [](KvCodec codec) { return codec == KvCodec::kInt4; };
// What is sealed comes from f16, so a wider or another float would promise what it cannot keep.
constexpr auto kForbidsResidual = [](KvCodec codec) {
  return codec == KvCodec::kF32 || codec == KvCodec::kBf16;
};
constexpr auto kIsSealed = [](KvCodec codec) { return kernels::IsSealed(codec); };
constexpr auto kIsQuantized = [](KvCodec codec) { return kernels::IsQuantized(codec); };
constexpr auto kKeepsSinks = [](KvCodec codec) { return KeepsSinks(codec); };

// Models attend most to what is near. That in f16 makes int4's divergence ten times smaller.
constexpr int kDefaultInt4Residual = 64;

int AskedResidual(const KvFormat& format, int layers) {
  if (format.residual_tokens) return *format.residual_tokens;
  if (FindCodec(format, layers, kIsKivi)) return kDefaultKiviResidual;
  const bool suits = FindCodec(format, layers, kIsInt4).has_value() &&
                     !FindCodec(format, layers, kForbidsResidual);
  return suits ? kDefaultInt4Residual : 0;
}

Status ValidateResidual(const KvFormat& format, int layers) {
  if (format.residual_tokens.value_or(0) < 0 || format.residual_tokens.value_or(0) > 1 << 20) {
    return MakeError(ErrorKind::kUsage, "--kv-residual of {} tokens is outside 0..{}",
                     *format.residual_tokens, 1 << 20);
  }
  const auto quantized = FindCodec(format, layers, kIsQuantized);
  if (format.residual_tokens.value_or(0) > 0 && !quantized) {
    return MakeError(ErrorKind::kUsage,
                     "--kv-residual {} keeps new tokens in f16 before they are encoded, and {} is "
                     "not encoded; leave it out, or use it with fp8, int8, int4, kivi4 or kivi2",
                     *format.residual_tokens, Name(format.key_codec));
  }
  if (ResidualTokens(format, layers) == 0) return Ok{};
  const auto plain = FindCodec(format, layers, kForbidsResidual);
  if (plain) {
    return MakeError(ErrorKind::kUsage,
                     "{} together with {} cannot work: blocks of {} are encoded from an f16 tail, "
                     "which all layers' keys and values share; use f16 in place of {}",
                     Name(*plain), Name(*quantized), Name(*quantized), Name(*plain));
  }
  return Ok{};
}

Status ValidateSinks(const KvFormat& format, int layers) {
  if (!format.sink_tokens) return Ok{};
  if (*format.sink_tokens < 0 || *format.sink_tokens > kMaxSinks) {
    return MakeError(ErrorKind::kUsage, "--kv-sink-tokens {} is outside 0..{}", *format.sink_tokens,
                     kMaxSinks);
  }
  if (*format.sink_tokens > 0 && !FindCodec(format, layers, kKeepsSinks)) {
    return MakeError(
        ErrorKind::kUsage,
        "--kv-sink-tokens {} with {} keys and {} values cannot work: sinks are kept by "
        "codecs below 8 bits (int4, kivi4, kivi2); leave it out or make it 0",
        *format.sink_tokens, Name(format.key_codec), Name(format.value_codec));
  }
  return Ok{};
}

}  // namespace

std::string Name(const KvFormat& format) {
  std::string name =
      format.key_codec == format.value_codec
          ? std::string(kernels::Name(format.key_codec))
          : fmt::format("k={},v={}", Name(format.key_codec), Name(format.value_codec));
  if (!format.layers.empty()) name += fmt::format(" ({} layers differ)", format.layers.size());
  return name;
}

Status ValidateFormat(const KvFormat& format, int layers) {
  if (format.block_size != 16 && format.block_size != 32 && format.block_size != 64) {
    return MakeError(ErrorKind::kUsage, "a block of {} tokens is not possible: use 16, 32 or 64",
                     format.block_size);
  }
  const auto too_small = FindCodec(format, layers, [&](KvCodec codec) {
    return kernels::MinBlockSize(codec) > format.block_size;
  });
  if (too_small) {
    return MakeError(ErrorKind::kUsage,
                     "{} with blocks of {} tokens cannot work: its keys share a scale over {} "
                     "tokens; use --block-size 32 or 64",
                     Name(*too_small), format.block_size, kernels::MinBlockSize(*too_small));
  }
  for (const LayerCodecs& own : format.layers) {
    if (own.layer >= 0 && own.layer < layers) continue;
    return MakeError(ErrorKind::kUsage,
                     "a KV codec is given for layer {}, but the model has layers 0..{}", own.layer,
                     layers - 1);
  }
  QUIRE_RETURN_IF_ERROR(ValidateResidual(format, layers));
  return ValidateSinks(format, layers);
}

int ResidualTokens(const KvFormat& format, int layers) {
  const int asked = AskedResidual(format, layers);
  if (asked == 0 && !FindCodec(format, layers, kIsSealed)) return 0;
  const int blocks = (asked + format.block_size - 1) / format.block_size;
  return std::max(1, blocks) * format.block_size;
}

int SinkTokens(const KvFormat& format, int layers) {
  if (!FindCodec(format, layers, kKeepsSinks)) return 0;
  return format.sink_tokens.value_or(kDefaultSinks);
}

}  // namespace quire::kvstore
