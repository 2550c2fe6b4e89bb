// Weights: the tensors of a model as the forward pass wants them. Matrices are packed for the
// matmul kernels in the type of the file; vectors are f32. Immutable once loaded.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "kernels/packed_matrix.h"
#include "model/model_files.h"
#include "tensor/view.h"

namespace quire::model {

// h = hidden_size, f = ffn_size, q/kv = all heads together. Matrices are [out, in]. Vectors that
// the model does not have are empty.
struct LayerWeights {
  std::vector<float> attention_norm;       // [h]
  std::vector<float> post_attention_norm;  // [h]
  std::vector<float> ffn_norm;             // [h]
  std::vector<float> post_ffn_norm;        // [h]
  std::vector<float> q_norm;               // [head_dim]
  std::vector<float> k_norm;               // [head_dim]

  kernels::PackedMatrix q;     // [q, h]
  kernels::PackedMatrix k;     // [kv, h]
  kernels::PackedMatrix v;     // [kv, h]
  kernels::PackedMatrix o;     // [h, q]
  kernels::PackedMatrix gate;  // [f, h]
  kernels::PackedMatrix up;    // [f, h]
  kernels::PackedMatrix down;  // [h, f]

  std::vector<float> q_bias;     // [q]
  std::vector<float> k_bias;     // [kv]
  std::vector<float> v_bias;     // [kv]
  std::vector<float> o_bias;     // [h]
  std::vector<float> gate_bias;  // [f]
  std::vector<float> up_bias;    // [f]
  std::vector<float> down_bias;  // [h]
};

struct Weights {
  StoredTensor token_embedding;    // [vocab, h], in the ModelFiles: few rows of it are ever read
  kernels::PackedMatrix output;    // [vocab, h], also where it is tied to the embedding
  std::vector<float> output_norm;  // [h]
  std::vector<LayerWeights> layers;

  uint64_t bytes() const;  // held in memory, without the embedding
};

// `progress` is called on the calling thread with the share done, 0..1. `files` must outlive the
// result. Every shape is checked before memory is taken. Matrices are copied in pieces and the
// mapped pages given back, so that resident memory stays near the size of the model.
Result<Weights> LoadWeights(const ModelFiles& files, base::ThreadTeam& team,
                            base::FunctionRef<void(double)> progress);

}  // namespace quire::model
