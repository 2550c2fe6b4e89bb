// How the KV cache's format is asked for, and what a wrong question is answered.
#include "cli/kv_format_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"

namespace quire::cli {
namespace {

using kernels::KvCodec;
using kvstore::KvCodecs;
using ::testing::HasSubstr;

std::string ErrorOf(const Result<kvstore::KvFormat>& format) {
  return format.ok() ? "" : format.error().message;
}

TEST(KvFormatFlags, OneNameIsForKeysAndValues) {
  for (KvCodec codec : kernels::kAllKvCodecs) {
    const auto format = ParseKvCodecs(std::string(kernels::Name(codec)));
    ASSERT_TRUE(format.ok());
    EXPECT_EQ(format->codecs(0), (KvCodecs{codec, codec}));
  }
  EXPECT_EQ(ParseKvCodecs("auto")->codecs(0), (KvCodecs{KvCodec::kF16, KvCodec::kF16}));
  EXPECT_EQ(ParseKvCodecs("fp8")->codecs(0), (KvCodecs{KvCodec::kFp8E4M3, KvCodec::kFp8E4M3}));
}

TEST(KvFormatFlags, KeysAndValuesMayDiffer) {
  EXPECT_EQ(ParseKvCodecs("k=int8,v=int4")->codecs(3), (KvCodecs{KvCodec::kInt8, KvCodec::kInt4}));
  EXPECT_EQ(ParseKvCodecs("v=kivi2,k=fp8")->codecs(3),
            (KvCodecs{KvCodec::kFp8E4M3, KvCodec::kKivi2}));
  EXPECT_EQ(ParseKvCodecs("v=int8")->codecs(3), (KvCodecs{KvCodec::kF16, KvCodec::kInt8}));
}

TEST(KvFormatFlags, WhatIsNotUnderstoodIsNamed) {
  EXPECT_THAT(ErrorOf(ParseKvCodecs("q4_0")), HasSubstr("'q4_0' is no KV codec; use auto, f32"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("int3")), HasSubstr("'int3'"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("")), HasSubstr("''"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("k=int8,x=int4")), HasSubstr("as in k=int8,v=int4"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("k=int8,k=int4")), HasSubstr("as in k=int8,v=int4"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("k=int5")), HasSubstr("'int5'"));
  EXPECT_THAT(ErrorOf(ParseKvCodecs("missing.json")), HasSubstr("missing.json"));
}

TEST(KvFormatFlags, AFileNamesCodecsPerLayer) {
  const auto format = ParseKvCodecFile(R"({"keys": "int8", "values": "int4",
      "layers": {"0": "f16", "2-3": {"values": "int8"}, "5": {"keys": "kivi4"}}})",
                                       "kv.json");
  ASSERT_TRUE(format.ok()) << format.error().message;
  EXPECT_EQ(format->codecs(0), (KvCodecs{KvCodec::kF16, KvCodec::kF16}));
  EXPECT_EQ(format->codecs(1), (KvCodecs{KvCodec::kInt8, KvCodec::kInt4}));
  EXPECT_EQ(format->codecs(3), (KvCodecs{KvCodec::kInt8, KvCodec::kInt8}));
  EXPECT_EQ(format->codecs(5), (KvCodecs{KvCodec::kKivi4, KvCodec::kInt4}));
  EXPECT_EQ(ParseKvCodecFile("{}", "kv.json")->codecs(0), (KvCodecs{}));
}

TEST(KvFormatFlags, AWrongFileIsAnErrorThatNamesIt) {
  for (const char* text :
       {"", "[]", "{\"keys\": 3}", "{\"codec\": \"int8\"}", "{\"layers\": [\"f16\"]}",
        "{\"layers\": {\"x\": \"f16\"}}", "{\"layers\": {\"3-1\": \"f16\"}}",
        "{\"layers\": {\"0\": \"f16\", \"0-1\": \"int8\"}}", "{\"layers\": {\"0\": 8}}",
        "{\"layers\": {\"0\": {\"k\": \"f16\"}}}", "{\"layers\": {\"0-9999999\": \"f16\"}}"}) {
    const auto format = ParseKvCodecFile(text, "kv.json");
    ASSERT_FALSE(format.ok()) << text;
    EXPECT_THAT(format.error().message, HasSubstr("kv.json")) << text;
  }
}

TEST(KvFormatFlags, TheBinaryRunsEveryCodecAndStatesWhatATokenCosts) {
  for (const char* dtype : {"int8", "kivi2", "k=int8,v=int4"}) {
    const BinaryResult result =
        RunBinary(std::string("run --stats --temperature 0 --max-tokens 8 --kv-cache-dtype ") +
                  dtype + " 'Once upon a time'");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(std::string("KV ") + dtype + ": "));
    EXPECT_THAT(result.err, HasSubstr("bytes per token"));
  }
}

TEST(KvFormatFlags, CombinationsThatCannotWorkEndTheStartWithASentence) {
  struct Wrong {
    const char* flags;
    const char* message;
  };
  for (const Wrong& wrong :
       {Wrong{"--kv-cache-dtype kivi4 --block-size 16", "kivi4 with blocks of 16 tokens"},
        Wrong{"--kv-cache-dtype k=f32,v=fp8", "f32 together with fp8_e4m3"},
        Wrong{"--kv-cache-dtype int8 --kv-sink-tokens 4", "--kv-sink-tokens 4"},
        Wrong{"--kv-residual 64", "--kv-residual 64"},
        Wrong{"--kv-cache-dtype int8 --kv-cache-dtype-skip-layers 77", "layer 77"},
        Wrong{"--kv-cache-dtype int8 --kv-cache-dtype-skip-layers a", "'a' is no layer"},
        Wrong{"--kv-cache-dtype q8_0", "'q8_0' is no KV codec"}}) {
    const BinaryResult result = RunBinary(std::string("run hi ") + wrong.flags);
    EXPECT_NE(result.exit_code, 0) << wrong.flags;
    EXPECT_LT(result.exit_code, 100) << wrong.flags;
    EXPECT_THAT(result.err, HasSubstr(wrong.message));
  }
}

}  // namespace
}  // namespace quire::cli
