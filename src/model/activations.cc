#include "model/activations.h"

#include <algorithm>

namespace quire::model {

Activations::Activations(const ModelConfig& config, const StepLimits& limits)
    : hidden_(limits.rows, config.hidden_size),
      normed_(limits.rows, config.hidden_size),
      branch_(limits.rows, config.hidden_size),
      q_(limits.rows, config.q_size()),
      k_(limits.rows, config.kv_size()),
      v_(limits.rows, config.kv_size()),
      attended_(limits.rows, config.q_size()),
      gate_(limits.rows, config.ffn_size),
      up_(limits.rows, config.ffn_size),
      logits_(limits.logit_rows, config.vocab_size),
      cos_(limits.rows, config.rope.dims / 2),
      sin_(limits.rows, config.rope.dims / 2),
      sink_q_(limits.rows, config.q_size()),
      sink_cos_(limits.rows, config.rope.dims / 2),
      sink_sin_(limits.rows, config.rope.dims / 2),
      packed_(limits.rows, std::max({config.hidden_size, config.q_size(), config.ffn_size})) {}

size_t Activations::bytes() const {
  size_t total = packed_.bytes();
  for (const Rows* rows : {&hidden_, &normed_, &branch_, &q_, &k_, &v_, &attended_, &gate_, &up_,
                           &logits_, &cos_, &sin_, &sink_q_, &sink_cos_, &sink_sin_}) {
    total += rows->bytes();
  }
  return total;
}

}  // namespace quire::model
