#include "kvstore/kv_layout.h"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "kvstore/kv_store.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

KvLayout Layout(const KvGeometry& geometry, const KvFormat& format = {}) {
  return std::move(KvLayout::Create(geometry, format)).value();
}

// Windows of `period` layers of which the last sees everything.
std::vector<int> Alternating(int layers, int period, int window) {
  std::vector<int> windows(layers, window);
  for (int i = period - 1; i < layers; i += period) windows[i] = 0;
  return windows;
}

TEST(KvLayout, PiecesOfAFrameNeverOverlapAndAreAligned) {
  for (int head_dim : {1, 5, 20, 64, 80, 128}) {
    for (int kv_heads : {1, 3, 8}) {
      for (auto [keys, values] :
           {std::pair(KvCodec::kF32, KvCodec::kF16), std::pair(KvCodec::kBf16, KvCodec::kBf16)}) {
        for (int block_size : {16, 32, 64}) {
          KvLayout layout =
              Layout({kv_heads, head_dim, Alternating(7, 3, 64)}, {keys, values, block_size});
          std::vector<int> owner(layout.frame_bytes(), -1);
          int piece = 0;
          auto claim = [&](size_t offset, size_t bytes) {
            ASSERT_EQ(offset % 64, 0u);
            ASSERT_LE(offset + bytes, owner.size());
            for (size_t i = offset; i < offset + bytes; ++i) {
              ASSERT_EQ(owner[i], -1) << "byte " << i;
              owner[i] = piece;
            }
            ++piece;
          };
          for (int slot = 0; slot < layout.layer_slots(); ++slot) {
            for (int head = 0; head < kv_heads; ++head) {
              claim(layout.key_offset(layout.groups()[0].layers[slot], head),
                    kernels::KeyPieceBytes(keys, head_dim, block_size));
              claim(layout.value_offset(layout.groups()[0].layers[slot], head),
                    kernels::ValuePieceBytes(values, head_dim, block_size));
            }
          }
        }
      }
    }
  }
}

TEST(KvLayout, EveryLayerHasItsOwnSlotInAGroupOfItsWindow) {
  for (int layers = 1; layers <= 60; ++layers) {
    for (int period = 1; period <= 7; ++period) {
      std::vector<int> windows = Alternating(layers, period, 512);
      KvLayout layout = Layout({2, 64, windows});
      std::set<std::pair<int, int>> places;
      for (int layer = 0; layer < layers; ++layer) {
        LayerPlace place = layout.place(layer);
        EXPECT_TRUE(places.insert({place.group, place.slot}).second);
        EXPECT_LT(place.slot, layout.layer_slots());
        EXPECT_EQ(layout.window(place.group), windows[layer]);
        EXPECT_EQ(layout.groups()[place.group].layers[place.slot], layer);
      }
      EXPECT_EQ(layout.padding_layers(), layout.group_count() * layout.layer_slots() - layers);
      EXPECT_LE(layout.group_count(), 16);
    }
  }
}

TEST(KvLayout, OneWindowIsOneGroup) {
  KvLayout llama = Layout({8, 128, std::vector<int>(32, 0)});
  EXPECT_EQ(llama.group_count(), 1);
  EXPECT_EQ(llama.padding_layers(), 0);
  EXPECT_EQ(llama.bytes_per_token(), 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(llama.frame_bytes(), 32u * 2 * 32 * 8 * 128 * 2);
  KvLayout mistral = Layout({8, 128, std::vector<int>(32, 4096)});
  EXPECT_EQ(mistral.group_count(), 1);
  EXPECT_EQ(mistral.window(0), 4096);
}

TEST(KvLayout, Gemma2IsTwoGroupsOfThirteenLayers) {
  KvLayout gemma2 = Layout({4, 256, Alternating(26, 2, 4096)});
  ASSERT_EQ(gemma2.group_count(), 2);
  EXPECT_EQ(gemma2.groups()[0].layers.size(), 13u);
  EXPECT_EQ(gemma2.groups()[1].layers.size(), 13u);
  EXPECT_EQ(gemma2.padding_layers(), 0);
}

TEST(KvLayout, UnequalCountsBecomeSeveralGroupsOfEqualSize) {
  // 22 windowed and 4 full layers: 11 + 2 groups of 2.
  KvLayout even = Layout({1, 256, Alternating(26, 6, 512)});
  EXPECT_EQ(even.layer_slots(), 2);
  EXPECT_EQ(even.group_count(), 13);
  EXPECT_EQ(even.padding_layers(), 0);
  // 29 and 1: without padding it would take 30 groups.
  KvLayout odd = Layout({1, 256, Alternating(30, 30, 512)});
  EXPECT_EQ(odd.layer_slots(), 2);
  EXPECT_EQ(odd.group_count(), 16);
  EXPECT_EQ(odd.padding_layers(), 2);
  EXPECT_NE(odd.Describe().find("1 of 2 layer slots unused"), std::string::npos) << odd.Describe();
}

TEST(KvLayout, WindowedGroupsKeepOnlyWhatTheNextQuerySees) {
  KvLayout layout = Layout({1, 64, {0, 64}}, {.block_size = 16});
  EXPECT_EQ(layout.frames_for_tokens(0), 0);
  EXPECT_EQ(layout.frames_for_tokens(1), 2);
  EXPECT_EQ(layout.frames_for_tokens(64), 8);
  // The query at position 1,600 sees 1,537.. of its own window: blocks 96 to 99 are kept.
  EXPECT_EQ(layout.frames_for_tokens(1600), 100 + 4);
}

TEST(KvLayout, ImpossibleRequestsAreErrors) {
  EXPECT_FALSE(KvLayout::Create({8, 128, {0}}, {.block_size = 48}).ok());
  EXPECT_FALSE(KvLayout::Create({8, 128, {}}, {}).ok());
  EXPECT_FALSE(KvLayout::Create({0, 128, {0}}, {}).ok());
  EXPECT_FALSE(KvLayout::Create({8, 1 << 20, {0}}, {}).ok());
  EXPECT_FALSE(KvLayout::Create({8, 128, {-1}}, {}).ok());
}

TEST(KvStore, AnArenaIsCutIntoWholeFrames) {
  KvLayout layout = Layout({2, 64, {0, 0}});
  KvStore store = std::move(KvStore::Create(layout, 10 * layout.frame_bytes() + 17)).value();
  EXPECT_EQ(store.frames_total(), 10);
  EXPECT_EQ(store.frame({9}) - store.frame({0}), static_cast<ptrdiff_t>(9 * layout.frame_bytes()));
}

TEST(KvStore, TooLittleAndTooMuchMemoryAreErrorsWithBothNumbers) {
  KvLayout layout = Layout({8, 128, std::vector<int>(32, 0)});
  Result<KvStore> small = KvStore::Create(layout, layout.frame_bytes() - 1);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().kind, ErrorKind::kExhausted);
  EXPECT_NE(small.error().message.find(fmt::format("{} bytes", layout.frame_bytes())),
            std::string::npos)
      << small.error().message;
  Result<KvStore> large = KvStore::Create(layout, size_t{1} << 46);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().kind, ErrorKind::kExhausted);
  EXPECT_NE(large.error().message.find("67108864.0 MiB needed"), std::string::npos)
      << large.error().message;
}

TEST(KvStore, CopyTokensCopiesNoMoreThanAsked) {
  KvLayout layout = Layout({2, 6, {0, 0}}, {KvCodec::kF16, KvCodec::kF32, 16});
  KvStore store = std::move(KvStore::Create(layout, 2 * layout.frame_bytes())).value();
  for (int tokens : {0, 1, 9, 16}) {
    std::memset(store.frame({0}), 0xaa, layout.frame_bytes());
    std::memset(store.frame({1}), 0x55, layout.frame_bytes());
    store.CopyTokens({0}, {1}, tokens, 0);
    size_t copied = 0;
    for (size_t i = 0; i < layout.frame_bytes(); ++i) {
      copied += store.frame({1})[i] == std::byte{0xaa};
    }
    // 2 layers, 2 heads, 6 channels, 2 bytes of key and 4 of value.
    EXPECT_EQ(copied, static_cast<size_t>(2 * 2 * tokens * 6 * (2 + 4)));
  }
}

}  // namespace
}  // namespace quire::kvstore
