// Activations: the scratch memory of a forward pass, allocated once for the largest step.
#pragma once

#include <cstdint>

#include "kernels/matmul.h"
#include "model/model_config.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace quire::model {

// The largest step a Transformer will be asked for.
struct StepLimits {
  int rows = 512;         // tokens per step
  int sequences = 64;     // runs per step
  int logit_rows = 64;    // rows of logits computed at a time
  int max_positions = 0;  // longest sequence
};

class Activations {
 public:
  Activations(const ModelConfig& config, const StepLimits& limits);

  // Views of the first `rows` rows; contents are whatever the last step left.
  MatrixView<float> hidden(int64_t rows) { return hidden_.View(rows); }  // [rows, hidden_size]
  MatrixView<float> normed(int64_t rows) { return normed_.View(rows); }  // [rows, hidden_size]
  MatrixView<float> branch(int64_t rows) { return branch_.View(rows); }  // [rows, hidden_size]
  MatrixView<float> q(int64_t rows) { return q_.View(rows); }            // [rows, q_heads*head_dim]
  MatrixView<float> k(int64_t rows) { return k_.View(rows); }  // [rows, kv_heads*head_dim]
  MatrixView<float> v(int64_t rows) { return v_.View(rows); }  // [rows, kv_heads*head_dim]
  MatrixView<float> attended(int64_t rows) { return attended_.View(rows); }  // [rows, q_size]
  MatrixView<float> gate(int64_t rows) { return gate_.View(rows); }          // [rows, ffn_size]
  MatrixView<float> up(int64_t rows) { return up_.View(rows); }              // [rows, ffn_size]
  MatrixView<float> logits(int64_t rows) { return logits_.View(rows); }      // [rows, vocab_size]
  MatrixView<float> cos(int64_t rows) { return cos_.View(rows); }            // [rows, rope pairs]
  MatrixView<float> sin(int64_t rows) { return sin_.View(rows); }            // [rows, rope pairs]
  // The same of queries as StreamingLLM's sinks are seen by; memory is touched only if there are.
  MatrixView<float> sink_q(int64_t rows) { return sink_q_.View(rows); }
  MatrixView<float> sink_cos(int64_t rows) { return sink_cos_.View(rows); }
  MatrixView<float> sink_sin(int64_t rows) { return sink_sin_.View(rows); }

  kernels::PackedActivations& packed() { return packed_; }

  size_t bytes() const;

 private:
  class Rows {
   public:
    Rows(int64_t rows, int64_t cols)
        : buffer_(Buffer::AllocateOrThrow(rows * cols * sizeof(float))), rows_(rows), cols_(cols) {}
    MatrixView<float> View(int64_t rows) {
      QUIRE_CHECK_LE(rows, rows_);
      return {buffer_.as<float>(rows * cols_).data(), rows, cols_};
    }
    size_t bytes() const { return buffer_.bytes(); }

   private:
    Buffer buffer_;
    int64_t rows_;
    int64_t cols_;
  };

  Rows hidden_, normed_, branch_, q_, k_, v_, attended_, gate_, up_, logits_, cos_, sin_, sink_q_,
      sink_cos_, sink_sin_;
  kernels::PackedActivations packed_;
};

}  // namespace quire::model
