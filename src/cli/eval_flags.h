// The flags that every `quire eval` command has: which model, which codecs are compared, where the
// plot goes. The rest of the KV cache's flags (EngineFlags) hold for all codecs alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "base/flags.h"
#include "base/result.h"
#include "cli/engine_flags.h"
#include "cli/svg_plot.h"
#include "eval/kv_variant.h"

namespace quire::cli {

// The codecs that `codecs` names, as --kv-cache-dtype does elsewhere, with what `shared` says of
// block size, layers that stay f16, residual and sinks. Codecs that have no use for a residual or
// for sinks go without: the flags hold for all codecs of a run. kUsage for a name that is not
// known.
Result<kvstore::KvFormat> ParseKvFormat(const std::string& codecs, const kvstore::KvFormat& shared);

// The codec texts of a list: "f16,k=int8,v=int4,int4" is f16; k=int8,v=int4; int4. A k= or v= joins
// the other one before it.
std::vector<std::string> SplitCodecList(std::string_view list);

std::vector<std::string_view> SplitAtCommas(std::string_view text);

class EvalFlags {
 public:
  void Declare(base::FlagSet& flags);

  // The codecs that were named, in the order given; f16 if none was.
  Result<std::vector<eval::KvVariant>> Codecs() const;
  // The codecs to compare with f32; f32 itself is left out, as it always runs.
  Result<std::vector<eval::KvVariant>> Variants() const;
  Result<eval::KvVariant> Reference() const;

  // Loads the model that was named, or the default.
  Result<RunningModel> LoadModel(const Terminal& terminal) const;

  // Writes the plot to the file that --plot names, if it does. kIo.
  Status WritePlot(const PlotText& text, std::span<const PlotPoint> points) const;

 private:
  EngineFlags engine_;
  std::vector<std::string> codecs_;
  std::string plot_path_;
};

// What every row of a result says of its codec.
boost::json::object CodecAsJson(const eval::KvVariant& variant, const eval::KvCost& cost);
std::vector<std::string> CodecCells(const eval::KvVariant& variant, const eval::KvCost& cost);
inline const std::vector<std::string> kCodecColumns = {"codec", "bytes/token", "bits/value"};

// The first `max_bytes` of the text (0: all), a cut UTF-8 character left out. kInvalid for an empty
// text.
Result<std::string> FirstBytes(std::string text, int64_t max_bytes, std::string_view path);

}  // namespace quire::cli
