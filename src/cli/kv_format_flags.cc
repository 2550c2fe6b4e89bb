#include "cli/kv_format_flags.h"

#include <charconv>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "text/json_access.h"
#include "text/read_file.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using kernels::KvCodec;
using kvstore::KvCodecs;
using kvstore::KvFormat;

constexpr std::string_view kKnown =
    "auto, f32, f16, bf16, fp8, fp8_e4m3, fp8_e5m2, int8, int4, kivi4 or kivi2";

Result<KvCodec> ParseCodec(std::string_view name) {
  if (name == "auto") return KvCodec::kF16;
  if (name == "fp8") return KvCodec::kFp8E4M3;
  if (const auto codec = kernels::KvCodecFromName(name)) return *codec;
  return MakeError(ErrorKind::kUsage, "'{}' is no KV codec; use {}", name, kKnown);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> ParseLayer(std::string_view text) {
  int layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size() || layer < 0) return std::nullopt;
  return layer;
}

constexpr int kMaxLayer = 1023;

// "3" or "1-3".
Result<std::pair<int, int>> ParseLayers(std::string_view text, std::string_view where) {
  const std::vector<std::string_view> ends = Split(text, '-');
  const std::optional<int> first = ParseLayer(ends.front());
  const std::optional<int> last = ParseLayer(ends.back());
  if (ends.size() > 2 || !first || !last || *first > *last || *last > kMaxLayer) {
    return MakeError(ErrorKind::kUsage, "{}: '{}' is no layer or range of layers such as 0 or 2-5",
                     where, text);
  }
  return std::pair(*first, *last);
}

// k=...,v=... in any order.
Result<KvFormat> ParsePair(const std::string& text) {
  KvFormat format;
  std::optional<KvCodec> keys;
  std::optional<KvCodec> values;
  for (std::string_view part : Split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string_view plane = part.substr(0, equals);
    std::optional<KvCodec>* codec = nullptr;
    if (plane == "k") codec = &keys;
    if (plane == "v") codec = &values;
    if (equals == std::string_view::npos || codec == nullptr || codec->has_value()) {
      return MakeError(ErrorKind::kUsage,
                       "--kv-cache-dtype '{}' is not understood; name one codec, or one for keys "
                       "and one for values as in k=int8,v=int4",
                       text);
    }
    QUIRE_ASSIGN_OR_RETURN(*codec, ParseCodec(part.substr(equals + 1)));
  }
  format.key_codec = keys.value_or(KvCodec::kF16);
  format.value_codec = values.value_or(KvCodec::kF16);
  return format;
}

// A codec's name, or {"keys": name, "values": name}.
Result<KvCodecs> ParseLayerCodecs(const json::value& value, const KvFormat& format,
                                  std::string_view where) {
  KvCodecs codecs{format.key_codec, format.value_codec};
  if (value.is_string()) {
    QUIRE_ASSIGN_OR_RETURN(codecs.keys, ParseCodec(value.get_string()));
    codecs.values = codecs.keys;
    return codecs;
  }
  const json::object* members = value.if_object();
  if (members == nullptr) {
    return MakeError(ErrorKind::kUsage,
                     "{}: codecs must be a name, or an object with \"keys\" and \"values\"", where);
  }
  for (const auto& [name, codec] : *members) {
    KvCodec* plane = nullptr;
    if (name == "keys") plane = &codecs.keys;
    if (name == "values") plane = &codecs.values;
    if (plane == nullptr || !codec.is_string()) {
      return MakeError(ErrorKind::kUsage,
                       "{}: '{}' is not understood; \"keys\" and \"values\" take a codec's name",
                       where, std::string_view(name));
    }
    QUIRE_ASSIGN_OR_RETURN(*plane, ParseCodec(codec.get_string()));
  }
  return codecs;
}

}  // namespace

Result<KvFormat> ParseKvCodecFile(std::string_view text, std::string_view path) {
  QUIRE_ASSIGN_OR_RETURN(const json::value file, text::ParseJson(text, path));
  if (!file.is_object()) {
    return MakeError(ErrorKind::kUsage, "{} must hold an object with keys, values and layers",
                     path);
  }
  json::object planes = file.get_object();
  planes.erase("layers");
  KvFormat format;
  QUIRE_ASSIGN_OR_RETURN(const KvCodecs all, ParseLayerCodecs(planes, format, path));
  format.key_codec = all.keys;
  format.value_codec = all.values;
  const json::value* layers = text::Member(file, "layers");
  if (layers == nullptr) return format;
  if (!layers->is_object()) {
    return MakeError(ErrorKind::kUsage, "{}: \"layers\" must be an object", path);
  }
  for (const auto& [name, value] : layers->get_object()) {
    QUIRE_ASSIGN_OR_RETURN(const auto range, ParseLayers(name, path));
    QUIRE_ASSIGN_OR_RETURN(const KvCodecs codecs, ParseLayerCodecs(value, format, path));
    for (int layer = range.first; layer <= range.second; ++layer) {
      if (format.FindLayer(layer) != nullptr) {
        return MakeError(ErrorKind::kUsage, "{} names layer {} twice", path, layer);
      }
      format.layers.push_back({layer, codecs});
    }
  }
  return format;
}

Result<KvFormat> ParseKvCodecs(const std::string& text) {
  if (text.ends_with(".json")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string file, text::ReadFile(text));
    return ParseKvCodecFile(file, text);
  }
  if (text.find('=') != std::string::npos) return ParsePair(text);
  KvFormat format;
  QUIRE_ASSIGN_OR_RETURN(format.key_codec, ParseCodec(text));
  format.value_codec = format.key_codec;
  return format;
}

void KvFormatFlags::Declare(base::FlagSet& flags) {
  flags.Group("KV cache");
  flags
      .Add("kv-cache-dtype", &dtype_,
           "How keys and values are stored: auto (f16), f32, f16, bf16, fp8 (fp8_e4m3), fp8_e5m2, "
           "int8, int4, kivi4 or kivi2; each for itself as in k=int8,v=int4; or a .json file with "
           "codecs per layer.")
      .Metavar("CODEC");
  DeclareForEveryCodec(flags);
}

void KvFormatFlags::DeclareForEveryCodec(base::FlagSet& flags) {
  flags
      .Add("kv-cache-dtype-skip-layers", &skip_layers_,
           "Layers whose keys and values stay f16, as in 0,1,30-31.")
      .Metavar("LAYERS");
  flags
      .Add("kv-residual", &residual_,
           "Newest tokens kept in f16 before they are encoded, in whole blocks; by default 128 for "
           "kivi4 and kivi2, 64 for int4, else 0.")
      .Unit("tokens");
  flags
      .Add("kv-sink-tokens", &sink_tokens_,
           "First tokens of a sequence kept in f16 by codecs below 8 bits; by default 4.")
      .Unit("tokens");
  flags
      .Add("kv-rotation", &rotation_,
           "Which of int4's planes are multiplied by a Hadamard matrix before they are stored.")
      .OneOf({"none", "keys", "values", "both"});
  flags.Add("block-size", &block_size_, "Tokens per block of KV memory: 16, 32 or 64.")
      .Unit("tokens")
      .Range(16, 64);
}

Result<KvFormat> KvFormatFlags::Format() const {
  QUIRE_ASSIGN_OR_RETURN(KvFormat format, ParseKvCodecs(dtype_));
  if (!skip_layers_.empty()) {
    for (std::string_view part : Split(skip_layers_, ',')) {
      QUIRE_ASSIGN_OR_RETURN(const auto range, ParseLayers(part, "--kv-cache-dtype-skip-layers"));
      for (int layer = range.first; layer <= range.second; ++layer) {
        std::erase_if(format.layers, [&](const auto& own) { return own.layer == layer; });
        format.layers.push_back({layer, {KvCodec::kF16, KvCodec::kF16}});
      }
    }
  }
  format.block_size = block_size_;
  format.residual_tokens = residual_;
  format.sink_tokens = sink_tokens_;
  using kvstore::KvRotation;
  for (const auto& [name, rotation] :
       {std::pair{"none", KvRotation::kNone}, std::pair{"keys", KvRotation::kKeys},
        std::pair{"values", KvRotation::kValues}, std::pair{"both", KvRotation::kBoth}}) {
    if (rotation_ == name) format.rotation = rotation;
  }
  return format;
}

}  // namespace quire::cli
