#include "eval/run_requests.h"

#include <map>
#include <string>
#include <utility>

namespace quire::eval {

Result<std::vector<engine::Completion>> RunRequests(engine::Engine& engine,
                                                    std::vector<sched::Request> requests,
                                                    const std::function<void(int64_t)>& step_done) {
  QUIRE_CHECK(engine.idle());
  std::map<int, size_t> index_of;
  std::vector<engine::CompletionBuilder> builders;
  for (sched::Request& request : requests) {
    builders.emplace_back(request);
    Result<RequestId> id = engine.Submit(std::move(request));
    if (!id.ok()) {
      for (const auto& [submitted, index] : index_of) engine.Cancel({submitted});
      return std::move(id).error();
    }
    index_of[id->value] = builders.size() - 1;
  }
  int64_t generated = 0;
  const engine::UpdateSink sink = [&](const engine::SequenceUpdate& update) {
    generated += static_cast<int64_t>(update.tokens.size());
    builders[index_of.at(update.request.value)].Add(update);
  };
  while (engine.Step(sink)) step_done(std::exchange(generated, 0));

  std::vector<engine::Completion> completions;
  for (engine::CompletionBuilder& builder : builders) {
    engine::Completion completion = builder.Take();
    if (const auto& error = completion.choices[0].error) return *error;
    completions.push_back(std::move(completion));
  }
  return completions;
}

}  // namespace quire::eval
