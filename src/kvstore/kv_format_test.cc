// Formats: what follows from them, what cannot work, and how much more than in f16 the same memory
// holds.
#include "kvstore/kv_format.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvstore/kv_layout.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;
using ::testing::HasSubstr;

KvFormat Format(KvCodec keys, KvCodec values) {
  KvFormat format;
  format.key_codec = keys;
  format.value_codec = values;
  return format;
}

KvFormat Format(KvCodec codec) {
  return Format(codec, codec);
}

std::string ErrorOf(const KvFormat& format) {
  const Status status = ValidateFormat(format, 4);
  return status.ok() ? "" : status.error().message;
}

TEST(KvFormat, ResidualGroupsAreWholeBlocksAndOnlyWhereSomethingIsSealed) {
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kF16), 4), 0);
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kInt8), 4), 0);
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kInt4), 4), 64);
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kInt4, KvCodec::kF32), 4), 0);  // f32 has no f16 tail
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kFp8E4M3), 4), 32);
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kKivi2), 4), 128);
  EXPECT_EQ(ResidualTokens(Format(KvCodec::kInt8, KvCodec::kKivi4), 4), 128);
  KvFormat format = Format(KvCodec::kInt4);
  format.residual_tokens = 70;
  EXPECT_EQ(ResidualTokens(format, 4), 96);
  format.residual_tokens = 0;
  EXPECT_EQ(ResidualTokens(format, 4), 0);  // encoded token by token
  format = Format(KvCodec::kKivi4);
  format.residual_tokens = 0;
  EXPECT_EQ(ResidualTokens(format, 4), 32);  // a block is sealed when it is full
  format = Format(KvCodec::kF16);
  format.layers = {{2, {KvCodec::kF16, KvCodec::kFp8E5M2}}};
  EXPECT_EQ(ResidualTokens(format, 4), 32);
}

TEST(KvFormat, SinksAreKeptBelowEightBits) {
  EXPECT_EQ(SinkTokens(Format(KvCodec::kInt8), 4), 0);
  EXPECT_EQ(SinkTokens(Format(KvCodec::kFp8E4M3), 4), 0);
  EXPECT_EQ(SinkTokens(Format(KvCodec::kInt8, KvCodec::kInt4), 4), 4);
  EXPECT_EQ(SinkTokens(Format(KvCodec::kKivi2), 4), 4);
  KvFormat format = Format(KvCodec::kKivi2);
  format.sink_tokens = 0;
  EXPECT_EQ(SinkTokens(format, 4), 0);
}

TEST(KvFormat, EveryCombinationWorksOrSaysWhatDoes) {
  int works = 0;
  int refused = 0;
  for (KvCodec keys : kernels::kAllKvCodecs) {
    for (KvCodec values : kernels::kAllKvCodecs) {
      for (int block_size : {16, 32, 64}) {
        for (std::optional<int> residual :
             {std::optional<int>(), std::optional(0), std::optional(32), std::optional(128)}) {
          KvFormat format = Format(keys, values);
          format.block_size = block_size;
          format.residual_tokens = residual;
          const auto layout = KvLayout::Create({2, 64, {0, 0, 0, 0}}, format);
          if (layout.ok()) {
            ++works;
            EXPECT_TRUE(kv::KvCache::Validate(layout->CacheOptions(100)).ok());
            continue;
          }
          ++refused;
          EXPECT_EQ(layout.error().kind, ErrorKind::kUsage);
          EXPECT_THAT(layout.error().message, HasSubstr("use"));
        }
      }
    }
  }
  EXPECT_GT(works, 400);
  EXPECT_GT(refused, 100);
}

TEST(KvFormat, WhatCannotWorkIsNamed) {
  KvFormat format = Format(KvCodec::kKivi4);
  format.block_size = 16;
  EXPECT_THAT(ErrorOf(format), HasSubstr("kivi4 with blocks of 16 tokens"));
  EXPECT_THAT(ErrorOf(format), HasSubstr("--block-size 32 or 64"));
  format = Format(KvCodec::kF32, KvCodec::kFp8E4M3);
  EXPECT_THAT(ErrorOf(format), HasSubstr("f32 together with fp8_e4m3"));
  EXPECT_THAT(ErrorOf(format), HasSubstr("use f16 in place of f32"));
  EXPECT_EQ(ErrorOf(Format(KvCodec::kF32, KvCodec::kInt8)), "");  // both encode at once
  format = Format(KvCodec::kF16);
  format.residual_tokens = 64;
  EXPECT_THAT(ErrorOf(format), HasSubstr("--kv-residual 64"));
  format = Format(KvCodec::kInt8);
  format.sink_tokens = 4;
  EXPECT_THAT(ErrorOf(format), HasSubstr("--kv-sink-tokens 4 with int8 keys and int8 values"));
  format = Format(KvCodec::kInt4);
  format.sink_tokens = 17;
  EXPECT_THAT(ErrorOf(format), HasSubstr("0..16"));
  format = Format(KvCodec::kInt8);
  format.layers = {{4, {KvCodec::kF16, KvCodec::kF16}}};
  EXPECT_THAT(ErrorOf(format), HasSubstr("layer 4, but the model has layers 0..3"));
}

// Tokens that the cache keeps sealed when one sequence after another is computed and let go, in an
// arena of so many bytes.
int SealedTokens(const KvLayout& layout, size_t arena_bytes) {
  kv::KvCacheOptions options = layout.CacheOptions(*layout.FramesIn(arena_bytes));
  options.max_leases = 1;
  options.max_lease_tokens = 1024;
  kv::KvCache cache(options);
  const int sequences = 2 + options.frames * layout.block_size() / 1024;
  for (int i = 0; i < sequences; ++i) {
    std::vector<TokenId> tokens(1024, i);
    auto lease = cache.Reserve(cache.NoMatch({}), 1024);
    QUIRE_CHECK(lease.has_value());
    cache.Commit(*lease, tokens);
  }
  cache.CheckInvariants();
  // Sinks hold no block of their own.
  int tokens = 0;
  for (int i = 0; i < sequences; ++i) {
    std::vector<TokenId> prompt(1025, i);
    tokens += cache.Match(prompt, {}).tokens;
  }
  return tokens;
}

TEST(KvFormat, TheSameMemoryHoldsAsManyMoreSealedTokensAsTheBitsPromise) {
  struct Promise {
    KvCodec codec;
    double times;
  };
  // The heads of llama-3.1-8b and of the bundled model.
  for (const KvGeometry& geometry :
       {KvGeometry{8, 128, std::vector<int>(32, 0)}, KvGeometry{2, 32, std::vector<int>(6, 0)}}) {
    const KvLayout plain = std::move(KvLayout::Create(geometry, Format(KvCodec::kF16))).value();
    const size_t arena = 6400 * plain.frame_bytes();
    const double f16 = SealedTokens(plain, arena);
    EXPECT_EQ(f16, 6400 * 32);
    for (const Promise& promise : {Promise{KvCodec::kInt8, 1.88}, Promise{KvCodec::kFp8E4M3, 1.88},
                                   Promise{KvCodec::kFp8E5M2, 1.88}, Promise{KvCodec::kInt4, 3.2},
                                   Promise{KvCodec::kKivi4, 3.2}, Promise{KvCodec::kKivi2, 5.3}}) {
      KvFormat format = Format(promise.codec);
      if (KeepsSinks(promise.codec)) format.sink_tokens = 0;
      const KvLayout layout = std::move(KvLayout::Create(geometry, format)).value();
      const double times = SealedTokens(layout, arena) / f16;
      EXPECT_GE(times, promise.times) << Name(promise.codec) << " heads of " << geometry.head_dim;
      // Sinks cost their frames per sequence and nothing else: here of 1,024 tokens each.
      const KvLayout sinks = std::move(KvLayout::Create(geometry, Format(promise.codec))).value();
      const double share = sinks.sink_frames() / (sinks.sink_frames() + 1024.0 / 32);
      EXPECT_GE(SealedTokens(sinks, arena) / f16, promise.times * (1 - share) * 0.995);
      EXPECT_EQ(sinks.frame_bytes(), layout.frame_bytes());
    }
  }
}

TEST(KvFormat, ALayoutSaysWhatTailAndSinksTake) {
  const KvGeometry llama{8, 128, std::vector<int>(32, 0)};
  const auto layout = [&](KvCodec codec) {
    return std::move(KvLayout::Create(llama, Format(codec))).value();
  };
  EXPECT_EQ(layout(KvCodec::kF16).tail_frames(), 0);
  EXPECT_EQ(layout(KvCodec::kInt8).tail_frames(), 0);
  EXPECT_EQ(layout(KvCodec::kInt4).tail_frames(), 4);
  EXPECT_EQ(layout(KvCodec::kFp8E4M3).tail_frames(), 2);
  EXPECT_EQ(layout(KvCodec::kKivi4).tail_frames(), 4);
  EXPECT_EQ(layout(KvCodec::kKivi2).tail_frames(), 6);
  EXPECT_EQ(layout(KvCodec::kInt4).sink_frames(), 1);
  EXPECT_EQ(layout(KvCodec::kKivi2).sink_frames(), 2);
  EXPECT_EQ(layout(KvCodec::kKivi2).bytes_per_token(), 32 * 8 * 128 * 2 * 3 / 8.0);
  // 100 tokens are an open group of four blocks; 128 a sealed one, with its sinks.
  EXPECT_EQ(layout(KvCodec::kKivi2).frames_for_tokens(100), 4 * 6);
  EXPECT_EQ(layout(KvCodec::kKivi2).frames_for_tokens(128), 4 + 2);
  EXPECT_EQ(layout(KvCodec::kKivi2).frames_for_tokens(129), 4 + 2 + 6);
}

TEST(KvFormat, PiecesOfTailAndSinksNeverOverlap) {
  for (KvCodec codec : {KvCodec::kKivi2, KvCodec::kFp8E4M3, KvCodec::kInt4}) {
    for (int heads : {1, 3}) {
      KvFormat format = Format(codec);
      format.residual_tokens = 64;
      const KvLayout layout =
          std::move(KvLayout::Create({heads, 80, {0, 0, 64, 0}}, format)).value();
      const size_t sink_pair = layout.sink_tokens() * 80 * 2 + kSinkBlock * 80 * 2;
      for (int group = 0; group < layout.group_count(); ++group) {
        std::set<std::pair<int, size_t>> tails;
        std::set<std::pair<int, size_t>> sinks;
        for (int layer : layout.groups()[group].layers) {
          for (int head = 0; head < heads; ++head) {
            const PairPlace tail = layout.tail_place(layer, head);
            EXPECT_TRUE(tails.insert({tail.frame, tail.keys}).second);
            EXPECT_LT(tail.frame, layout.tail_frames());
            EXPECT_EQ(tail.keys % layout.full_pair_bytes(), 0u);
            EXPECT_LE(tail.keys + layout.full_pair_bytes(), layout.frame_bytes());
            if (layout.sink_tokens() == 0) continue;
            const PairPlace sink = layout.sink_place(layer, head);
            EXPECT_TRUE(sinks.insert({sink.frame, sink.keys}).second);
            EXPECT_LT(sink.frame, layout.sink_frames());
            EXPECT_EQ(sink.keys % sink_pair, 0u);
            EXPECT_LE(sink.keys + sink_pair, layout.frame_bytes());
          }
        }
      }
    }
  }
}

TEST(KvLayout, LayersOfUnequalCodecsAreSpreadSoThatGroupsAreAboutEqual) {
  // Two windows, so several groups per frame size; the first four windowed layers stay f16.
  KvFormat format = Format(KvCodec::kInt4);
  for (int layer : {0, 1, 2, 3}) format.layers.push_back({layer, {KvCodec::kF16, KvCodec::kF16}});
  std::vector<int> windows(12, 64);
  for (int layer : {8, 9, 10, 11}) windows[layer] = 0;
  const KvLayout layout = std::move(KvLayout::Create({2, 128, windows}, format)).value();
  ASSERT_EQ(layout.group_count(), 3);
  const size_t int4 = 2 * (layout.key_bytes(11) + layout.value_bytes(11));
  const size_t f16 = 2 * (layout.key_bytes(0) + layout.value_bytes(0));
  EXPECT_EQ(layout.frame_bytes(), 2 * f16 + 2 * int4);
}

}  // namespace
}  // namespace quire::kvstore
