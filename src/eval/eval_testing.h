// Models and codecs for the tests of evaluations.
#pragma once

#include <string>

#include "base/thread_team.h"
#include "eval/kv_variant.h"
#include "testing/engine_runner.h"

namespace quire::eval {

inline constexpr const char* kDraftPath = "models/draft";  // f32 weights
inline constexpr const char* kProbePath = "models/probe/probe-f16.gguf";
inline constexpr const char* kTextPath = "models/val.txt";

struct ModelForTest {
  explicit ModelForTest(const std::string& path)
      : team(2), model(testing::LoadModelOrDie(path, team)) {}
  base::ThreadTeam team;
  std::unique_ptr<engine::LoadedModel> model;
};

inline KvVariant VariantOf(kernels::KvCodec codec) {
  kvstore::KvFormat format;
  format.key_codec = codec;
  format.value_codec = codec;
  return {std::string(kernels::Name(codec)), format};
}

}  // namespace quire::eval
