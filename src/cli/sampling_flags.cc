#include "cli/sampling_flags.h"

#include <algorithm>

namespace quire::cli {

void SamplingFlags::Declare(base::FlagSet& flags) {
  flags.Group("Sampling");
  flags.Add("max-tokens", &max_tokens_, "Most tokens to generate.")
      .Short('n')
      .Unit("tokens")
      .AtLeast(0);
  flags.Add("min-tokens", &min_tokens_, "No end of text or stop string before so many tokens.")
      .Unit("tokens")
      .AtLeast(0);
  flags
      .Add("temperature", &temperature_,
           "Randomness; 0 always takes the likeliest token. By default the model's, else 0.7.")
      .Range(0, 100);
  flags
      .Add("top-k", &top_k_,
           "Draw among the k likeliest tokens; 0: all. By default the model's, else 40.")
      .AtLeast(0);
  flags
      .Add("top-p", &top_p_, "Draw among the likeliest tokens that together have this probability.")
      .Range(0, 1);
  flags.Add("min-p", &min_p_, "Drop tokens below this share of the likeliest one's probability.")
      .Range(0, 1);
  flags.Add("repetition-penalty", &repetition_penalty_, "Above 1 discourages what was said.")
      .Range(0.01, 100);
  flags.Add("presence-penalty", &presence_penalty_, "Taken off tokens that the output has.")
      .Range(-2, 2);
  flags.Add("frequency-penalty", &frequency_penalty_, "The same per occurrence.").Range(-2, 2);
  flags.Add("stop", &stop_, "Ends the text before this string; may be repeated.").Metavar("TEXT");
  flags.Add("ignore-eos", &ignore_eos_, "Go on after the end of text.");
}

sched::SamplingParams SamplingFlags::Params(const sched::SamplingParams& model_defaults) const {
  sched::SamplingParams params = model_defaults;
  params.temperature = temperature_.value_or(params.temperature);
  params.top_k = top_k_.value_or(params.top_k);
  params.top_p = top_p_.value_or(params.top_p);
  params.min_p = min_p_.value_or(params.min_p);
  params.repetition_penalty = repetition_penalty_.value_or(params.repetition_penalty);
  params.presence_penalty = presence_penalty_;
  params.frequency_penalty = frequency_penalty_;
  params.max_tokens = max_tokens_;
  params.min_tokens = std::min(min_tokens_, max_tokens_);
  params.ignore_eos = ignore_eos_;
  params.stop = stop_;
  std::erase(params.stop, "");
  return params;
}

}  // namespace quire::cli
