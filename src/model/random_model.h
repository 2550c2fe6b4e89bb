// Made models: random weights in the shape of a known model or of sizes given, with a made-up
// vocabulary, as GGUF files that any GGUF engine loads. For benchmarks, since shapes decide speed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace quire::model {

// What decides a shape; 0 where the architecture or another size decides.
struct ShapeSizes {
  std::string name;
  std::string architecture = "llama";
  int vocab_size = 0;
  int hidden_size = 0;
  int layers = 0;
  int q_heads = 0;
  int kv_heads = 0;  // 0: q_heads
  int head_dim = 0;  // 0: hidden_size / q_heads
  int ffn_size = 0;
  int context_length = 4096;
  double rope_theta = 10000.0;
  double llama3_factor = 0.0;  // 0: no scaling; else llama3's, from 8192 positions
  int longrope_from = 0;       // 0: none; else the context before longrope
  int sliding_window = 0;
  bool tied_embeddings = true;
};

// qwen2.5-0.5b, llama-3.2-1b, ...
std::vector<std::string> ShapeNames();
Result<ShapeSizes> NamedShape(std::string_view name);

// The configuration that a file written with these sizes has. kUsage if there is no such model.
Result<ModelConfig> ConfigOfShape(const ShapeSizes& sizes);

struct RandomModelOptions {
  ShapeSizes sizes;
  DType type = DType::kQ8_0;  // of the matrices: F32, F16, BF16, Q8_0 or Q4_0; vectors are F32
  uint64_t seed = 0;
};

// Writes the file, with the same weights for the same options on any machine. Values of a matrix
// are about normal with variance 1/cols (0.02^2 in the embedding), so that activations keep their
// size. `progress` gets the share done, 0..1, on the calling thread.
Status WriteRandomModel(const RandomModelOptions& options, const std::string& path,
                        base::ThreadTeam& team, base::FunctionRef<void(double)> progress);

}  // namespace quire::model
