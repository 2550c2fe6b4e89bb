// KvFormatFlags: the flags that say how the KV cache stores keys and values, and the file in which
// every layer may have its own codecs.
//
// A file is a JSON object; all members may be left out:
//
//     {
//       "keys": "int8",              // of every layer not named below; auto, that is f16, if left
//       out "values": "int4", "layers": {
//         "0": "f16",                // keys and values of layer 0
//         "1-3": {"keys": "int8", "values": "int8"}
//       }
//     }
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/flags.h"
#include "base/result.h"
#include "kvstore/kv_format.h"

namespace quire::cli {

// One codec for both ("int8"), one for each ("k=int8,v=int4"), or a file that ends in .json.
// kUsage with the names that are known.
Result<kvstore::KvFormat> ParseKvCodecs(const std::string& text);

// The text of a file as above.
Result<kvstore::KvFormat> ParseKvCodecFile(std::string_view text, std::string_view path);

class KvFormatFlags {
 public:
  void Declare(base::FlagSet& flags);
  // All but --kv-cache-dtype, for commands that take several codecs.
  void DeclareForEveryCodec(base::FlagSet& flags);
  Result<kvstore::KvFormat> Format() const;

 private:
  std::string dtype_ = "auto";
  std::string skip_layers_;
  std::optional<int> residual_;
  std::optional<int> sink_tokens_;
  std::string rotation_ = "both";
  int block_size_ = 32;
};

}  // namespace quire::cli
