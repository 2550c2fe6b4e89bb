#include "engine/completion.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::engine {
namespace {

// By which best_of ranks: the mean, so that a long answer is not worse for being long.
double MeanLogprob(const Choice& choice) {
  double sum = 0;
  for (const TokenLogprobs& entry : choice.logprobs) sum += entry.logprob;
  return choice.logprobs.empty() ? 0 : sum / static_cast<double>(choice.logprobs.size());
}

template <typename T>
void MoveInto(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

// Of a beam search the engine tells the n best alone.
CompletionBuilder::CompletionBuilder(const sched::Request& request)
    : returned_(request.n), choices_(request.beam_search ? request.n : request.sequences()) {
  for (size_t index = 0; index < choices_.size(); ++index) {
    choices_[index].index = static_cast<int>(index);
  }
}

void CompletionBuilder::Add(SequenceUpdate update) {
  Choice& choice = choices_[update.index];
  choice.text += update.text;
  MoveInto(choice.tokens, update.tokens);
  MoveInto(choice.logprobs, update.logprobs);
  MoveInto(completion_.prompt_logprobs, update.prompt_logprobs);
  if (!update.finish) return;
  ++finished_;
  choice.finish = *update.finish;
  choice.error = std::move(update.error);
  choice.stop_reason = std::move(update.stop_reason);
  completion_.usage.prompt_tokens = update.usage.prompt_tokens;
  completion_.usage.cached_tokens =
      std::max(completion_.usage.cached_tokens, update.usage.cached_tokens);
  completion_.usage.AddSequence(update.usage);
}

Completion CompletionBuilder::Take() {
  QUIRE_CHECK(done());
  if (returned_ < static_cast<int>(choices_.size())) {
    std::stable_sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
      return MeanLogprob(a) > MeanLogprob(b);
    });
    choices_.resize(returned_);
    for (int index = 0; index < returned_; ++index) choices_[index].index = index;
  }
  completion_.choices = std::move(choices_);
  return std::move(completion_);
}

}  // namespace quire::engine
