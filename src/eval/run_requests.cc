#include "eval/run_requests.h"

#include <map>
#include <string>
#include <utility>

namespace quire::eval {

std::optional<TokenId> BosOf(const text::Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
}

sched::Request ScoringRequest(std::vector<TokenId> prompt, std::span<const TokenId> output,
                              int alternatives) {
  sched::Request request;
  request.prompt = std::move(prompt);
  request.forced_output.assign(output.begin(), output.end());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int>(output.size());
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = alternatives;
  return request;
}

int KeptTokens(const engine::Completion& completion) {
  const engine::Usage& usage = completion.usage;
  // The last token was never computed.
  return usage.kv_tokens_kept.value_or(usage.prompt_tokens + usage.completion_tokens - 1);
}

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
