#include "model/model_files.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/gguf_config.h"
#include "testing/shared_data.h"

namespace quire::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelFilesTest, ReadsWhatTheGoldenModelsAre) {
  struct Expected {
    const char* file;
    const char* architecture;
    int hidden, layers, q_heads, kv_heads, head_dim, ffn;
    bool tied;
  };
  for (const Expected& expected : {
           Expected{"llama-mha", "llama", 64, 2, 4, 4, 16, 128, true},
           Expected{"llama-gqa", "llama", 96, 3, 6, 2, 16, 160, false},
           Expected{"llama-hd80", "llama", 160, 2, 4, 2, 80, 192, true},
           Expected{"qwen2", "qwen2", 128, 2, 4, 2, 32, 192, true},
           Expected{"qwen3", "qwen3", 128, 2, 4, 2, 64, 192, true},
           Expected{"phi3", "phi3", 128, 2, 4, 4, 32, 192, true},
           Expected{"gemma2", "gemma2", 128, 4, 4, 2, 32, 192, true},
       }) {
    SCOPED_TRACE(expected.file);
    QUIRE_SHARED_DATA_OR_SKIP(path, std::string("golden/") + expected.file + ".gguf");
    Result<ModelFiles> files = ModelFiles::Open(path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    ASSERT_TRUE(files->config().ok()) << files->config().error().message;
    const ModelConfig& config = *files->config();
    EXPECT_EQ(config.architecture, expected.architecture);
    EXPECT_EQ(config.vocab_size, 512);
    EXPECT_EQ(config.context_length, 512);
    EXPECT_EQ(config.hidden_size, expected.hidden);
    EXPECT_EQ(config.layers, expected.layers);
    EXPECT_EQ(config.q_heads, expected.q_heads);
    EXPECT_EQ(config.kv_heads, expected.kv_heads);
    EXPECT_EQ(config.head_dim, expected.head_dim);
    EXPECT_EQ(config.ffn_size, expected.ffn);
    EXPECT_EQ(config.tied_embeddings, expected.tied);
    EXPECT_EQ(config.bos_id, 1);
    EXPECT_THAT(config.eos_ids, ElementsAre(2));
    EXPECT_EQ(config.rope.dims, expected.head_dim);
    EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
    EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(1.0f * expected.head_dim));
    const bool llama = std::string(expected.architecture) == "llama";
    EXPECT_EQ(config.rope.pairing, llama ? RopePairing::kAdjacent : RopePairing::kHalves);
    EXPECT_EQ(config.qk_norm, std::string(expected.architecture) == "qwen3");
    EXPECT_EQ(config.qkv_bias, std::string(expected.architecture) == "qwen2");
  }
}

TEST(ModelFilesTest, Gemma2HasWindowsCapsAndScales) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "golden/gemma2.gguf");
  Result<ModelFiles> files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  const ModelConfig& config = *files->config();
  EXPECT_THAT(config.sliding_windows, ElementsAre(16, 0, 16, 0));
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.final_softcap, 30.0f);
  EXPECT_FLOAT_EQ(config.embedding_scale, std::sqrt(128.0f));
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.post_norms);
  EXPECT_FALSE(config.norm_weight_plus_one);
}

TEST(ModelFilesTest, OpensATrainedModelWithoutOptionalMetadata) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "models/stories260K.gguf");
  Result<ModelFiles> files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_TRUE(files->config().ok()) << files->config().error().message;
  EXPECT_EQ(files->config()->head_dim, 8);
  EXPECT_EQ(files->config()->kv_heads, 4);
  EXPECT_EQ(files->config()->rope.theta, 10000.0);
  EXPECT_FALSE(files->config()->tied_embeddings);
  EXPECT_FALSE(files->chat_template().has_value());
}

TEST(ModelFilesTest, OpensVocabulariesWithoutWeights) {
  QUIRE_SHARED_DATA_OR_SKIP(llama, "tokenizers/ggml-vocab-llama-bpe.gguf");
  Result<ModelFiles> files = ModelFiles::Open(llama);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_FALSE(files->has_tensors());
  EXPECT_TRUE(files->config().ok()) << files->config().error().message;

  QUIRE_SHARED_DATA_OR_SKIP(falcon, "tokenizers/ggml-vocab-falcon.gguf");
  Result<ModelFiles> other = ModelFiles::Open(falcon);
  ASSERT_TRUE(other.ok()) << other.error().message;
  ASSERT_FALSE(other->config().ok());
  EXPECT_EQ(other->config().error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(other->config().error().message, HasSubstr("'falcon'"));
  EXPECT_THAT(other->config().error().message, HasSubstr("llama, mistral, qwen2"));

  QUIRE_SHARED_DATA_OR_SKIP(directory, "tokenizers/qwen3-hf");
  Result<ModelFiles> tokenizer = ModelFiles::Open(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_TRUE(tokenizer->tokenizer_json_path().has_value());
  EXPECT_FALSE(tokenizer->config().ok());
}

TEST(ModelFilesTest, TheDirectoryAndTheGgufFileDescribeTheSameModel) {
  QUIRE_SHARED_DATA_OR_SKIP(gguf_path, "demo/target/target-f16.gguf");
  QUIRE_SHARED_DATA_OR_SKIP(hf_path, "demo/target");
  Result<ModelFiles> gguf = ModelFiles::Open(gguf_path);
  Result<ModelFiles> hf = ModelFiles::Open(hf_path);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  ASSERT_TRUE(hf.ok()) << hf.error().message;
  ASSERT_TRUE(hf->config().ok()) << hf->config().error().message;
  const ModelConfig& a = *gguf->config();
  const ModelConfig& b = *hf->config();
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.ffn_size, b.ffn_size);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.attention_scale, b.attention_scale);
  EXPECT_EQ(a.bos_id, b.bos_id);
  EXPECT_THAT(a.eos_ids, ElementsAre(2, 4091));
  EXPECT_THAT(b.eos_ids, ElementsAre(2, 4091));
  EXPECT_EQ(a.rope.pairing, RopePairing::kAdjacent);
  EXPECT_EQ(b.rope.pairing, RopePairing::kHalves);
  EXPECT_EQ(hf->generation_defaults().temperature, 0.7);
  EXPECT_EQ(hf->generation_defaults().top_k, 40);
  EXPECT_EQ(hf->generation_defaults().max_new_tokens, 256);
  EXPECT_TRUE(hf->tokenizer_model_path().has_value());
  ASSERT_TRUE(gguf->chat_template().has_value());
  EXPECT_EQ(gguf->chat_template(), hf->chat_template());
}

TEST(ModelFilesTest, TheBundledModelsAreWhatTheirDescriptionSays) {
  Result<ModelFiles> target = ModelFiles::Open("models/target/target-q8_0.gguf");
  ASSERT_TRUE(target.ok()) << target.error().message;
  ASSERT_TRUE(target->config().ok()) << target->config().error().message;
  EXPECT_EQ(target->config()->hidden_size, 256);
  EXPECT_EQ(target->config()->layers, 6);
  EXPECT_EQ(target->config()->q_heads, 8);
  EXPECT_EQ(target->config()->kv_heads, 2);
  EXPECT_EQ(target->config()->context_length, 1024);
  EXPECT_TRUE(target->chat_template().has_value());

  Result<ModelFiles> draft = ModelFiles::Open("models/draft");
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  ASSERT_TRUE(draft->config().ok()) << draft->config().error().message;
  EXPECT_EQ(draft->config()->hidden_size, 96);
  EXPECT_EQ(draft->config()->vocab_size, target->config()->vocab_size);
  EXPECT_EQ(draft->config()->eos_ids, target->config()->eos_ids);
  EXPECT_EQ(draft->chat_template(), target->chat_template());
}

TEST(ModelFilesTest, SaysWhatAPathShouldHaveBeen) {
  std::filesystem::path empty = std::filesystem::path(::testing::TempDir()) / "empty-model";
  std::filesystem::create_directories(empty);
  Result<ModelFiles> directory = ModelFiles::Open(empty);
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("config.json"));
  std::ofstream(empty / "a.safetensors") << "x";
  Result<ModelFiles> file = ModelFiles::Open(empty / "a.safetensors");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("give the directory"));
  std::filesystem::remove_all(empty);
  Result<ModelFiles> absent = ModelFiles::Open("/nonexistent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace quire::model
