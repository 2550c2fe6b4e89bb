// Runs requests through an Engine to their end, for tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/completion.h"
#include "engine/engine.h"

namespace quire::testing {

inline std::unique_ptr<engine::LoadedModel> LoadModelOrDie(const std::string& path,
                                                           base::ThreadTeam& team) {
  auto model = engine::LoadedModel::Load(path, team, [](double) {});
  if (!model.ok()) base::CheckFailed(__FILE__, __LINE__, model.error().message);
  return std::make_unique<engine::LoadedModel>(std::move(model).value());
}

inline std::unique_ptr<engine::Engine> MakeEngineOrDie(const engine::LoadedModel& model,
                                                       const engine::EngineOptions& options,
                                                       base::ThreadTeam& team) {
  auto engine = engine::Engine::Create(model, options, team);
  if (!engine.ok()) base::CheckFailed(__FILE__, __LINE__, engine.error().message);
  return std::move(engine).value();
}

// Ids of words, none of them special, in the bundled vocabulary.
inline std::vector<TokenId> RandomTokens(int count, uint64_t seed) {
  base::CounterRng rng(seed, 0, 0);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = 260 + static_cast<TokenId>(rng.NextBelow(3700));
  return tokens;
}

// All requests at once; completions in their order. Checks the cache's invariants as it goes.
// `before_step` is called ahead of every step.
inline std::vector<engine::Completion> Generate(
    engine::Engine& engine, std::vector<sched::Request> requests,
    base::FunctionRef<void()> before_step = [] {}) {
  std::map<int, size_t> index_of;
  std::vector<engine::CompletionBuilder> builders;
  for (sched::Request& request : requests) {
    builders.emplace_back(request);
    auto id = engine.Submit(std::move(request));
    if (!id.ok()) base::CheckFailed(__FILE__, __LINE__, id.error().message);
    index_of[id->value] = builders.size() - 1;
  }
  const engine::UpdateSink sink = [&](const engine::SequenceUpdate& update) {
    builders[index_of.at(update.request.value)].Add(update);
  };
  do {
    engine.scheduler().CheckInvariants();
    before_step();
  } while (engine.Step(sink));
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, 0);
  std::vector<engine::Completion> completions;
  for (engine::CompletionBuilder& builder : builders) completions.push_back(builder.Take());
  return completions;
}

inline engine::Completion GenerateOne(engine::Engine& engine, sched::Request request) {
  std::vector<sched::Request> requests;
  requests.push_back(std::move(request));
  return std::move(Generate(engine, std::move(requests)).front());
}

}  // namespace quire::testing
