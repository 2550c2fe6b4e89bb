// Strong integers: a frame is no token, and the compiler knows.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include <fmt/core.h>

namespace quire {

// An index of kind Tag. No arithmetic; `value` where a number is really meant.
template <typename Tag>
struct StrongId {
  int32_t value = 0;
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using FrameId = StrongId<struct FrameTag>;        // a frame of the KV arena
using BlockId = StrongId<struct BlockTag>;        // a block known to the KV cache
using SequenceId = StrongId<struct SequenceTag>;  // a sequence in the engine

// Token ids of a model's vocabulary. A plain integer: files, samplers and clients compute with it.
using TokenId = int32_t;

}  // namespace quire

template <typename Tag>
struct std::hash<quire::StrongId<Tag>> {
  size_t operator()(quire::StrongId<Tag> id) const { return std::hash<int32_t>()(id.value); }
};

template <typename Tag>
struct fmt::formatter<quire::StrongId<Tag>> : fmt::formatter<int32_t> {
  template <typename Context>
  auto format(quire::StrongId<Tag> id, Context& context) const {
    return fmt::formatter<int32_t>::format(id.value, context);
  }
};
