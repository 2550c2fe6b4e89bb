// CompletionBuilder: collects a request's updates into one Completion, for those who do not stream.
#pragma once

#include <vector>

#include "base/check.h"
#include "engine/output.h"

namespace quire::engine {

class CompletionBuilder {
 public:
  // Of best_of sequences the best n are kept, by mean log probability; else all, by index.
  explicit CompletionBuilder(const sched::Request& request);

  void Add(SequenceUpdate update);
  bool done() const { return finished_ == static_cast<int>(choices_.size()); }

  // Call when done.
  Completion Take();

 private:
  int returned_;
  int finished_ = 0;
  std::vector<Choice> choices_;
  Completion completion_;
};

}  // namespace quire::engine
