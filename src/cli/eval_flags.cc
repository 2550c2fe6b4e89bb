#include "cli/eval_flags.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace quire::cli {
namespace {

enum class Planes { kBoth, kKeys, kValues };

Planes PlanesOf(std::string_view text) {
  if (text.starts_with("k=")) return Planes::kKeys;
  return text.starts_with("v=") ? Planes::kValues : Planes::kBoth;
}

bool Uses(const kvstore::KvFormat& format, bool (*kind)(kernels::KvCodec)) {
  return kind(format.key_codec) || kind(format.value_codec) ||
         std::ranges::any_of(format.layers, [&](const kvstore::LayerCodecs& own) {
           return kind(own.codecs.keys) || kind(own.codecs.values);
         });
}

}  // namespace

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t comma; (comma = text.find(',')) != std::string_view::npos;) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

Result<kvstore::KvFormat> ParseKvFormat(const std::string& codecs,
                                        const kvstore::KvFormat& shared) {
  QUIRE_ASSIGN_OR_RETURN(kvstore::KvFormat format, ParseKvCodecs(codecs));
  format.block_size = shared.block_size;
  format.rotation = shared.rotation;
  for (const kvstore::LayerCodecs& own : shared.layers) {
    std::erase_if(format.layers, [&](const auto& other) { return other.layer == own.layer; });
    format.layers.push_back(own);
  }
  if (Uses(format, kernels::IsQuantized)) format.residual_tokens = shared.residual_tokens;
  if (Uses(format, kvstore::KeepsSinks)) format.sink_tokens = shared.sink_tokens;
  return format;
}

std::vector<std::string> SplitCodecList(std::string_view list) {
  std::vector<std::string> codecs;
  Planes open = Planes::kBoth;  // of a k= or v= that waits for the other
  for (const std::string_view part : SplitAtCommas(list)) {
    const Planes planes = PlanesOf(part);
    if (open != Planes::kBoth && planes != Planes::kBoth && planes != open) {
      codecs.back() += "," + std::string(part);
      open = Planes::kBoth;
    } else {
      codecs.emplace_back(part);
      open = planes;
    }
  }
  return codecs;
}

void EvalFlags::Declare(base::FlagSet& flags) {
  engine_.DeclareModel(flags);
  flags.Add("plot", &plot_path_, "Also draw quality against what it costs, as SVG, to this file.")
      .Metavar("FILE");
  engine_.DeclareThreads(flags);
  flags.Group("KV cache");
  flags
      .Add("kv-cache-dtype", &codecs_,
           "Codecs to compare, as a list or repeated: f16,k=f32,v=bf16; without it f16. The other "
           "flags of the KV cache hold for all of them.")
      .Metavar("CODECS");
  engine_.DeclareKvBlocks(flags);
}

Result<std::vector<eval::KvVariant>> EvalFlags::Codecs() const {
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvFormat format, engine_.kv_format());
  std::vector<eval::KvVariant> variants;
  std::vector<std::string> lists = codecs_;
  if (lists.empty()) lists.emplace_back("f16");
  for (const std::string& list : lists) {
    for (std::string& name : SplitCodecList(list)) {
      QUIRE_ASSIGN_OR_RETURN(const kvstore::KvFormat parsed, ParseKvFormat(name, format));
      variants.push_back({std::move(name), parsed});
    }
  }
  return variants;
}

Result<std::vector<eval::KvVariant>> EvalFlags::Variants() const {
  QUIRE_ASSIGN_OR_RETURN(std::vector<eval::KvVariant> variants, Codecs());
  std::erase_if(variants, [](const eval::KvVariant& variant) { return variant.name == "f32"; });
  return variants;
}

Result<eval::KvVariant> EvalFlags::Reference() const {
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvFormat format, engine_.kv_format());
  return eval::Reference(format);
}

Result<RunningModel> EvalFlags::LoadModel(const Terminal& terminal) const {
  QUIRE_ASSIGN_OR_RETURN(const std::string path, engine_.model_path());
  return engine_.LoadModel(path, terminal);
}

Status EvalFlags::WritePlot(const PlotText& text, std::span<const PlotPoint> points) const {
  if (plot_path_.empty()) return Ok{};
  std::ofstream out(plot_path_, std::ios::binary);
  out << SvgPlot(text, points);
  out.flush();
  if (!out) return MakeError(ErrorKind::kIo, "cannot write the plot to '{}'", plot_path_);
  return Ok{};
}

boost::json::object CodecAsJson(const eval::KvVariant& variant, const eval::KvCost& cost) {
  return {{"kv_cache_dtype", variant.name},
          {"bytes_per_token", cost.bytes_per_token},
          {"bits_per_value", cost.bits_per_value}};
}

std::vector<std::string> CodecCells(const eval::KvVariant& variant, const eval::KvCost& cost) {
  return {variant.name, fmt::format("{:.0f}", cost.bytes_per_token),
          fmt::format("{:.2f}", cost.bits_per_value)};
}

Result<std::string> FirstBytes(std::string text, int64_t max_bytes, std::string_view path) {
  if (max_bytes > 0 && static_cast<size_t>(max_bytes) < text.size()) {
    size_t end = static_cast<size_t>(max_bytes);
    // A continuation byte at the cut belongs to a character that began before it.
    for (int i = 0; i < 3 && end > 0 && (text[end] & 0xC0) == 0x80; ++i) --end;
    text.resize(end);
  }
  if (text.empty()) return MakeError(ErrorKind::kInvalid, "'{}' is empty; give a text", path);
  return text;
}

}  // namespace quire::cli
