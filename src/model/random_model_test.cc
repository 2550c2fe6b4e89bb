#include "model/random_model.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/architectures.h"
#include "model/made_vocabulary.h"
#include "model/test_files.h"
#include "model/weights.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;

ShapeSizes SmallSizes(std::string_view architecture) {
  ShapeSizes sizes;
  sizes.name = "small";
  sizes.architecture = architecture;
  sizes.vocab_size = 400;
  sizes.hidden_size = 64;
  sizes.layers = 3;
  sizes.q_heads = 4;
  sizes.kv_heads = 2;
  sizes.ffn_size = 96;
  sizes.context_length = 256;
  return sizes;
}

void Write(const RandomModelOptions& options, const std::string& path, int threads) {
  base::ThreadTeam team(threads);
  Status written = WriteRandomModel(options, path, team, [](double) {});
  ASSERT_TRUE(written.ok()) << written.error().message;
}

TEST(RandomModelTest, EveryNamedShapeIsAModel) {
  for (const std::string& name : ShapeNames()) {
    SCOPED_TRACE(name);
    Result<ShapeSizes> sizes = NamedShape(name);
    ASSERT_TRUE(sizes.ok());
    Result<ModelConfig> config = ConfigOfShape(*sizes);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->hidden_size % 32, 0);
    EXPECT_EQ(config->ffn_size % 32, 0);
  }
  Result<ShapeSizes> unknown = NamedShape("gpt-5");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::kUsage);
  EXPECT_THAT(unknown.error().message, HasSubstr("qwen2.5-0.5b"));
}

TEST(RandomModelTest, EveryArchitectureAndTypeLoads) {
  TemporaryDirectory directory("made");
  for (const Architecture& architecture : Architectures()) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture.name, Name(type)));
      RandomModelOptions options{.sizes = SmallSizes(architecture.name), .type = type, .seed = 1};
      options.sizes.sliding_window = 100;
      options.sizes.tied_embeddings = type != DType::kF16;
      const std::string path = directory.File("m.gguf");
      Write(options, path, 2);
      Result<ModelFiles> files = ModelFiles::Open(path);
      ASSERT_TRUE(files.ok()) << files.error().message;
      ASSERT_TRUE(files->config().ok()) << files->config().error().message;
      const ModelConfig& read = *files->config();
      const ModelConfig made = *ConfigOfShape(options.sizes);
      EXPECT_EQ(read.architecture, made.architecture);
      EXPECT_EQ(read.vocab_size, made.vocab_size);
      EXPECT_EQ(read.head_dim, made.head_dim);
      EXPECT_EQ(read.kv_heads, made.kv_heads);
      EXPECT_EQ(read.ffn_size, made.ffn_size);
      EXPECT_EQ(read.context_length, made.context_length);
      EXPECT_EQ(read.norm_eps, made.norm_eps);
      EXPECT_EQ(read.tied_embeddings, made.tied_embeddings);
      EXPECT_EQ(read.qkv_bias, made.qkv_bias);
      EXPECT_EQ(read.qk_norm, made.qk_norm);
      EXPECT_EQ(read.post_norms, made.post_norms);
      EXPECT_EQ(read.activation, made.activation);
      EXPECT_EQ(read.attention_scale, made.attention_scale);
      EXPECT_EQ(read.attention_softcap, made.attention_softcap);
      EXPECT_EQ(read.sliding_windows, made.sliding_windows);
      EXPECT_EQ(read.eos_ids, made.eos_ids);
      base::ThreadTeam team(2);
      Result<Weights> weights = LoadWeights(*files, team, [](double) {});
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      EXPECT_EQ(weights->layers[2].down.type(), type);
    }
  }
}

TEST(RandomModelTest, RopeFactorsComeBack) {
  TemporaryDirectory directory("rope");
  RandomModelOptions llama3{.sizes = SmallSizes("llama"), .type = DType::kF32, .seed = 1};
  llama3.sizes.llama3_factor = 8.0;
  llama3.sizes.rope_theta = 500000.0;
  Write(llama3, directory.File("a.gguf"), 1);
  Result<ModelFiles> a = ModelFiles::Open(directory.File("a.gguf"));
  ASSERT_TRUE(a.ok() && a->config().ok());
  EXPECT_EQ(a->config()->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(a->config()->rope.short_factors, ConfigOfShape(llama3.sizes)->rope.short_factors);
  EXPECT_EQ(a->config()->rope.short_factors.front(), 1.0f);
  EXPECT_FLOAT_EQ(a->config()->rope.short_factors.back(), 8.0f);

  RandomModelOptions longrope{.sizes = SmallSizes("phi3"), .type = DType::kF32, .seed = 1};
  longrope.sizes.longrope_from = 64;
  Write(longrope, directory.File("b.gguf"), 1);
  Result<ModelFiles> b = ModelFiles::Open(directory.File("b.gguf"));
  ASSERT_TRUE(b.ok() && b->config().ok());
  const RopeConfig& rope = b->config()->rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.original_context, 64);
  EXPECT_EQ(rope.long_factors, ConfigOfShape(longrope.sizes)->rope.long_factors);
  EXPECT_FLOAT_EQ(static_cast<float>(rope.attention_factor),
                  static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(64.0))));
}

TEST(RandomModelTest, TheSeedAloneDecidesTheBytes) {
  TemporaryDirectory directory("seed");
  RandomModelOptions options{.sizes = SmallSizes("qwen2"), .type = DType::kQ4_0, .seed = 7};
  Write(options, directory.File("one.gguf"), 1);
  Write(options, directory.File("three.gguf"), 3);
  options.seed = 8;
  Write(options, directory.File("other.gguf"), 1);
  const std::string one = ReadFile(directory.File("one.gguf"));
  EXPECT_TRUE(one == ReadFile(directory.File("three.gguf")));
  EXPECT_FALSE(one == ReadFile(directory.File("other.gguf")));
}

TEST(RandomModelTest, ValuesAreSpreadAsStated) {
  TemporaryDirectory directory("spread");
  RandomModelOptions options{.sizes = SmallSizes("llama"), .type = DType::kF32, .seed = 3};
  Write(options, directory.File("m.gguf"), 1);
  Result<ModelFiles> files = ModelFiles::Open(directory.File("m.gguf"));
  ASSERT_TRUE(files.ok());
  for (auto [name, deviation] : {std::pair{"token_embd.weight", 0.02},
                                 std::pair{"blk.1.ffn_down.weight", 1.0 / std::sqrt(96.0)}}) {
    SCOPED_TRACE(name);
    StoredTensor tensor = files->Tensor(name).value();
    const int64_t count = tensor.rows * tensor.cols;
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, tensor.data + 4 * i, sizeof(value));
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    // Five standard errors of the mean and of the variance.
    EXPECT_NEAR(sum / count, 0.0, 5 * deviation / std::sqrt(count));
    EXPECT_NEAR(squares / count / (deviation * deviation), 1.0, 5 * std::sqrt(2.0 / count));
  }
}

TEST(RandomModelTest, TheVocabularyIsUniqueAndComplete) {
  for (int size : {kMadeVocabularyMin, 32000, 152064}) {
    TemporaryDirectory directory("vocabulary");
    GgufWriter writer;
    WriteMadeVocabulary(size, writer);
    ASSERT_TRUE(writer.Open(directory.File("v.gguf")).ok());
    ASSERT_TRUE(writer.Finish().ok());
    Result<GgufFile> file = GgufFile::Open(directory.File("v.gguf"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    std::vector<std::string_view> tokens = *file->GetStringArray("tokenizer.ggml.tokens");
    EXPECT_EQ(tokens.size(), static_cast<size_t>(size));
    std::set<std::string_view> unique(tokens.begin(), tokens.end());
    EXPECT_EQ(unique.size(), tokens.size());
    EXPECT_TRUE(unique.contains("a"));
    EXPECT_TRUE(unique.contains("\xe2\x96\x81z"));
    EXPECT_EQ(file->GetFloatArray("tokenizer.ggml.scores")->size(), tokens.size());
    EXPECT_EQ(file->GetIntArray("tokenizer.ggml.token_type")->size(), tokens.size());
  }
}

TEST(RandomModelTest, RefusesWhatNoFileCouldHold) {
  auto error_of = [](const RandomModelOptions& options) {
    base::ThreadTeam team(1);
    Status written = WriteRandomModel(options, "/nonexistent/m.gguf", team, [](double) {});
    return written.ok() ? Error{} : written.error();
  };
  RandomModelOptions options{.sizes = SmallSizes("llama"), .type = DType::kQ4_0, .seed = 0};
  options.sizes.ffn_size = 90;
  EXPECT_THAT(error_of(options).message, HasSubstr("multiple of 32"));
  options.sizes.ffn_size = 96;
  options.type = DType::kQ4_K;
  EXPECT_THAT(error_of(options).message, HasSubstr("not in Q4_K"));
  options.type = DType::kF32;
  EXPECT_EQ(error_of(options).kind, ErrorKind::kIo);
  options.sizes.vocab_size = 300;
  EXPECT_EQ(error_of(options).kind, ErrorKind::kUsage);
  options.sizes.architecture = "mamba";
  EXPECT_THAT(error_of(options).message, HasSubstr("'mamba'"));
}

}  // namespace
}  // namespace quire::model
