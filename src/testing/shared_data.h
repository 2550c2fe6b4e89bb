// Where tests find the data that stays out of the repository: models, golden values, vocabularies.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace quire::testing {

// The path of `name` under $QUIRE_SHARED/data (default ../shared/data), or nullopt where it is
// absent: the test then skips and says so.
inline std::optional<std::string> SharedData(const std::string& name) {
  const char* root = std::getenv("QUIRE_SHARED");
  std::filesystem::path path = std::filesystem::path(root ? root : "../shared") / "data" / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

}  // namespace quire::testing

// Declares `path` or skips the test, naming what is missing.
#define QUIRE_SHARED_DATA_OR_SKIP(path, name)                                               \
  auto path##_found = ::quire::testing::SharedData(name);                                   \
  if (!path##_found) {                                                                      \
    GTEST_SKIP() << "test data " << (name) << " is absent; set QUIRE_SHARED to its folder"; \
  }                                                                                         \
  const std::string path = *path##_found
