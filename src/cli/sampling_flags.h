// The flags that choose the next token, for commands that take them from the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "sched/request.h"

namespace quire::cli {

class SamplingFlags {
 public:
  void Declare(base::FlagSet& flags);

  // What was set, over the model's own defaults.
  sched::SamplingParams Params(const sched::SamplingParams& model_defaults) const;

 private:
  std::optional<float> temperature_;
  std::optional<int> top_k_;
  std::optional<float> top_p_;
  std::optional<float> min_p_;
  std::optional<float> repetition_penalty_;
  float presence_penalty_ = 0.0f;
  float frequency_penalty_ = 0.0f;
  int max_tokens_ = 256;
  int min_tokens_ = 0;
  bool ignore_eos_ = false;
  std::vector<std::string> stop_;
};

}  // namespace quire::cli
