#include "model/weights.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "kernels/half.h"
#include "testing/shared_data.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;

Result<Weights> Load(const ModelFiles& files) {
  base::ThreadTeam team(2);
  return LoadWeights(files, team, [](double) {});
}

std::vector<float> Row(const kernels::PackedMatrix& matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.DecodeRow(row, values.data());
  return values;
}

// Rows that lie `half` apart within a head in one file are neighbours in the other.
int64_t AdjacentRow(int64_t row, int head_dim) {
  int64_t head = row / head_dim;
  int64_t channel = row % head_dim;
  int64_t half = head_dim / 2;
  return head * head_dim + (channel < half ? 2 * channel : 2 * (channel - half) + 1);
}

TEST(WeightsTest, EveryPublishedModelLoads) {
  for (const char* folder : {"golden", "quants", "models", "demo/target", "demo/draft", "probe"}) {
    QUIRE_SHARED_DATA_OR_SKIP(path, folder);
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() != ".gguf") continue;
      SCOPED_TRACE(entry.path().string());
      Result<ModelFiles> files = ModelFiles::Open(entry.path());
      ASSERT_TRUE(files.ok()) << files.error().message;
      Result<Weights> weights = Load(*files);
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      const ModelConfig& config = *files->config();
      ASSERT_EQ(weights->layers.size(), static_cast<size_t>(config.layers));
      EXPECT_EQ(weights->layers[0].q_bias.empty(), !config.qkv_bias);
      EXPECT_EQ(weights->layers[0].q_norm.empty(), !config.qk_norm);
      EXPECT_EQ(weights->layers[0].post_ffn_norm.empty(), !config.post_norms);
      EXPECT_EQ(weights->output.rows(), config.vocab_size);
    }
  }
}

TEST(WeightsTest, EveryTensorTypeDecodesToThePublishedValues) {
  for (const DTypeTraits& traits : kDTypeTraits) {
    if (traits.name == "F32") continue;
    SCOPED_TRACE(traits.name);
    QUIRE_SHARED_DATA_OR_SKIP(path, fmt::format("quants/{}.gguf", traits.name));
    QUIRE_SHARED_DATA_OR_SKIP(values_path, fmt::format("quants/{}.ffn_up.f32.bin", traits.name));
    Result<ModelFiles> files = ModelFiles::Open(path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    Result<StoredTensor> tensor = files->Tensor("blk.0.ffn_up.weight");
    ASSERT_TRUE(tensor.ok()) << tensor.error().message;
    EXPECT_EQ(Name(tensor->type), traits.name);
    std::vector<float> expected(256 * 256);
    std::ifstream(values_path, std::ios::binary)
        .read(reinterpret_cast<char*>(expected.data()), 256 * 256 * 4);
    Result<Weights> weights = Load(*files);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    std::vector<float> row(256);
    for (int r = 0; r < 256; ++r) {
      kernels::DequantizeRow(tensor->type, tensor->row(r), 256, row.data());
      const float* want = expected.data() + r * 256;
      ASSERT_EQ(std::memcmp(row.data(), want, 256 * 4), 0) << "row " << r;
      ASSERT_EQ(Row(weights->layers[0].up, r), row) << "row " << r;
    }
  }
}

TEST(WeightsTest, SafetensorsAndGgufHoldTheSameWeights) {
  for (const char* name : {"target", "draft"}) {
    QUIRE_SHARED_DATA_OR_SKIP(hf_path, std::string("demo/") + name);
    QUIRE_SHARED_DATA_OR_SKIP(gguf_path, fmt::format("demo/{}/{}-f16.gguf", name, name));
    Result<ModelFiles> hf_files = ModelFiles::Open(hf_path);
    Result<ModelFiles> gguf_files = ModelFiles::Open(gguf_path);
    ASSERT_TRUE(hf_files.ok() && gguf_files.ok());
    Result<Weights> hf = Load(*hf_files);
    Result<Weights> gguf = Load(*gguf_files);
    ASSERT_TRUE(hf.ok()) << hf.error().message;
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const int head_dim = hf_files->config()->head_dim;
    for (size_t layer = 0; layer < hf->layers.size(); ++layer) {
      const LayerWeights& a = hf->layers[layer];
      const LayerWeights& b = gguf->layers[layer];
      EXPECT_EQ(a.attention_norm, b.attention_norm);
      EXPECT_EQ(a.ffn_norm, b.ffn_norm);
      auto expect_same = [](const kernels::PackedMatrix& x, const kernels::PackedMatrix& y,
                            auto map_row) {
        ASSERT_EQ(x.rows(), y.rows());
        for (int64_t r = 0; r < x.rows(); ++r) {
          std::vector<float> full = Row(x, r);
          std::vector<float> half = Row(y, map_row(r));
          for (size_t c = 0; c < full.size(); ++c) {
            ASSERT_EQ(kernels::F32FromF16(kernels::F16FromF32(full[c])), half[c]);
          }
        }
      };
      auto same_row = [](int64_t r) { return r; };
      auto permuted = [&](int64_t r) { return AdjacentRow(r, head_dim); };
      expect_same(a.q, b.q, permuted);
      expect_same(a.k, b.k, permuted);
      expect_same(a.v, b.v, same_row);
      expect_same(a.o, b.o, same_row);
      expect_same(a.gate, b.gate, same_row);
      expect_same(a.up, b.up, same_row);
      expect_same(a.down, b.down, same_row);
    }
    EXPECT_EQ(hf->output_norm, gguf->output_norm);
  }
}

TEST(WeightsTest, FusedTensorsAreSplitByRows) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "golden/phi3.gguf");
  Result<ModelFiles> files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  Result<Weights> weights = Load(*files);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  StoredTensor qkv = files->Tensor("blk.1.attn_qkv.weight").value();
  StoredTensor gate_up = files->Tensor("blk.1.ffn_up.weight").value();
  const LayerWeights& layer = weights->layers[1];
  auto expect_row = [](const kernels::PackedMatrix& matrix, int64_t row, const StoredTensor& from,
                       int64_t from_row) {
    std::vector<float> expected(static_cast<size_t>(from.cols));
    std::memcpy(expected.data(), from.row(from_row), from.row_bytes());
    EXPECT_EQ(Row(matrix, row), expected);
  };
  expect_row(layer.q, 127, qkv, 127);
  expect_row(layer.k, 0, qkv, 128);
  expect_row(layer.v, 5, qkv, 256 + 5);
  expect_row(layer.gate, 191, gate_up, 191);
  expect_row(layer.up, 0, gate_up, 192);
}

TEST(WeightsTest, AVocabularyIsNoModel) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-llama-spm.gguf");
  Result<ModelFiles> files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  Result<Weights> weights = Load(*files);
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(weights.error().message, HasSubstr("vocabulary and no weights"));
}

}  // namespace
}  // namespace quire::model
