// Runs requests through an Engine to their end and collects what came of them.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/completion.h"
#include "engine/engine.h"

namespace quire::eval {

// All at once; completions in their order. The first request that is refused, or that ends in an
// error, is the whole call's error. The engine must be idle. `step_done` gets the tokens generated
// by a step.
Result<std::vector<engine::Completion>> RunRequests(
    engine::Engine& engine, std::vector<sched::Request> requests,
    const std::function<void(int64_t)>& step_done = [](int64_t) {});

}  // namespace quire::eval
