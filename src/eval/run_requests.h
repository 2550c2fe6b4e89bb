// Runs requests through an Engine to their end and collects what came of them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/completion.h"
#include "engine/engine.h"

namespace quire::eval {

// What stands before a text, if the model's tokenizer puts anything there.
std::optional<TokenId> BosOf(const text::Tokenizer& tokenizer);

// Asks what the model thinks of each token of `output`, at least one, after those before it: its
// log probability, with `alternatives` most likely tokens beside it. The tokens are computed one by
// one, as generated ones are.
sched::Request ScoringRequest(std::vector<TokenId> prompt, std::span<const TokenId> output,
                              int alternatives = 0);

// Tokens of a request's one sequence that had their KV when it ended.
int KeptTokens(const engine::Completion& completion);

// All at once; completions in their order. The first request that is refused, or that ends in an
// error, is the whole call's error. The engine must be idle. `step_done` gets the tokens generated
// by a step.
Result<std::vector<engine::Completion>> RunRequests(
    engine::Engine& engine, std::vector<sched::Request> requests,
    const std::function<void(int64_t)>& step_done = [](int64_t) {});

}  // namespace quire::eval
