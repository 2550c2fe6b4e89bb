#include "model/hf_config.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/json_fields.h"
#include "model/model_files.h"
#include "model/test_files.h"
#include "model/weights.h"

namespace quire::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ModelConfig> Parse(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(boost::json::object object, ParseJsonObject(text, "config.json"));
  return ConfigFromHf(object, "config.json");
}

// The configuration, or a failed test.
ModelConfig Config(std::string_view hf_class, std::string_view extra = "") {
  Result<ModelConfig> config = Parse(TestConfig(hf_class, extra));
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig{};
}

std::string ErrorOf(std::string_view hf_class, std::string_view extra = "") {
  Result<ModelConfig> config = Parse(TestConfig(hf_class, extra));
  return config.ok() ? "no error" : config.error().message;
}

TEST(HfConfigTest, LlamaIsThePlainOne) {
  ModelConfig config = Config("LlamaForCausalLM");
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.vocab_size, kTestVocab);
  EXPECT_EQ(config.q_heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rope.pairing, RopePairing::kHalves);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.dims, 8);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.qk_norm);
  EXPECT_THAT(config.sliding_windows, Each(0));
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(2));

  ModelConfig biased = Config("LlamaForCausalLM", R"("attention_bias":true,"mlp_bias":true,)");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
}

TEST(HfConfigTest, WindowsFollowTheArchitecture) {
  EXPECT_THAT(Config("MistralForCausalLM", R"("sliding_window":100,)").sliding_windows,
              ElementsAre(100, 100));
  EXPECT_THAT(Config("MistralForCausalLM", R"("sliding_window":null,)").sliding_windows, Each(0));
  EXPECT_THAT(Config("Qwen2ForCausalLM", R"("sliding_window":100,)").sliding_windows, Each(0));
  EXPECT_THAT(Config("Qwen2ForCausalLM",
                     R"("sliding_window":100,"use_sliding_window":true,"max_window_layers":1,)")
                  .sliding_windows,
              ElementsAre(0, 100));
  EXPECT_THAT(Config("Gemma2ForCausalLM", R"("sliding_window":100,)").sliding_windows,
              ElementsAre(100, 0));
  EXPECT_THAT(Config("Phi3ForCausalLM", R"("sliding_window":2047,)").sliding_windows, Each(2047));
  EXPECT_THAT(Config("Phi3ForCausalLM", R"("sliding_window":262144,)").sliding_windows, Each(0));
  EXPECT_THAT(Config("Gemma2ForCausalLM",
                     R"("sliding_window":9,"layer_types":["full_attention","sliding_attention"],)")
                  .sliding_windows,
              ElementsAre(0, 9));
  EXPECT_THAT(ErrorOf("Gemma2ForCausalLM", R"("layer_types":["full_attention"],)"),
              HasSubstr("1 layer types for 2 layers"));
  EXPECT_THAT(
      ErrorOf("Gemma2ForCausalLM", R"("layer_types":["full_attention","linear_attention"],)"),
      HasSubstr("'linear_attention'"));
}

TEST(HfConfigTest, Gemma2ScalesAndCaps) {
  ModelConfig config = Config("Gemma2ForCausalLM",
                              R"("query_pre_attn_scalar":144,"attn_logit_softcapping":50.0,
                                 "final_logit_softcapping":null,)");
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / 12.0f);
  EXPECT_FLOAT_EQ(config.embedding_scale, std::sqrt(32.0f));
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.final_softcap, 0.0f);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.norm_weight_plus_one && config.post_norms && config.tied_embeddings);
  EXPECT_EQ(Config("Gemma2ForCausalLM").final_softcap, 30.0f);
}

TEST(HfConfigTest, QwensHaveBiasesOrNorms) {
  ModelConfig qwen2 = Config("Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias || qwen2.qk_norm);
  ModelConfig qwen3 = Config("Qwen3ForCausalLM");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(HfConfigTest, ReadsEveryRopeScaling) {
  ModelConfig linear =
      Config("LlamaForCausalLM", R"("rope_scaling":{"type":"linear","factor":4},)");
  EXPECT_EQ(linear.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.rope.factor, 4.0);
  EXPECT_EQ(linear.context_length, 16384);

  ModelConfig llama3 = Config("LlamaForCausalLM",
                              R"("rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",
                                 "factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                                 "original_max_position_embeddings":8192},)");
  EXPECT_EQ(llama3.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama3.rope.theta, 500000.0);
  EXPECT_EQ(llama3.rope.factor, 32.0);
  EXPECT_EQ(llama3.rope.original_context, 8192);
  EXPECT_EQ(llama3.context_length, 4096);

  ModelConfig yarn = Config("Qwen2ForCausalLM",
                            R"("rope_scaling":{"type":"yarn","factor":4.0,
                               "original_max_position_embeddings":4096},)");
  EXPECT_EQ(yarn.rope.scaling, RopeScaling::kYarn);
  EXPECT_NEAR(yarn.rope.attention_factor, 1.0 + 0.1 * std::log(4.0), 1e-12);
  EXPECT_EQ(yarn.context_length, 16384);

  ModelConfig longrope =
      Config("Phi3ForCausalLM",
             R"("original_max_position_embeddings":1024,"rope_scaling":{"type":"su",
                "short_factor":[1,1,1.5,2],"long_factor":[1,2,4,8.5]},)");
  EXPECT_EQ(longrope.rope.scaling, RopeScaling::kLongRope);
  EXPECT_THAT(longrope.rope.short_factors, ElementsAre(1.0f, 1.0f, 1.5f, 2.0f));
  EXPECT_THAT(longrope.rope.long_factors, ElementsAre(1.0f, 2.0f, 4.0f, 8.5f));
  EXPECT_EQ(longrope.rope.original_context, 1024);
  EXPECT_NEAR(longrope.rope.attention_factor, std::sqrt(1.0 + std::log(4.0) / std::log(1024.0)),
              1e-12);

  ModelConfig newer =
      Config("LlamaForCausalLM", R"("rope_parameters":{"rope_type":"default","rope_theta":7.5},)");
  EXPECT_EQ(newer.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(newer.rope.theta, 7.5);
  EXPECT_EQ(Config("Phi3ForCausalLM", R"("partial_rotary_factor":0.75,)").rope.dims, 6);
}

TEST(HfConfigTest, RefusesWhatTheForwardPassDoesNotCompute) {
  EXPECT_THAT(ErrorOf("MixtralForCausalLM"), HasSubstr("'MixtralForCausalLM'"));
  EXPECT_THAT(ErrorOf("MixtralForCausalLM"), HasSubstr("supported are llama"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("num_local_experts":8,)"), HasSubstr("8 experts"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("quantization_config":{"quant_method":"awq"},)"),
              HasSubstr("'awq'"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("hidden_act":"relu2",)"), HasSubstr("'relu2'"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("rope_scaling":{"rope_type":"dynamic"},)"),
              HasSubstr("'dynamic'"));
  EXPECT_THAT(ErrorOf("Qwen2ForCausalLM",
                      R"("rope_scaling":{"rope_type":"yarn","factor":2,"truncate":false},)"),
              HasSubstr("truncate"));
}

TEST(HfConfigTest, RefusesWhatCannotBe) {
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("rope_theta":-1,)"), HasSubstr("theta"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("rope_theta":"x",)"), HasSubstr("a number"));
  EXPECT_THAT(ErrorOf("LlamaForCausalLM", R"("attention_bias":3,)"), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf("Phi3ForCausalLM", R"("rope_scaling":{"type":"longrope","short_factor":[1],
                                             "long_factor":[1]},)"),
              HasSubstr("1 short RoPE factors for 4 rotated pairs"));
  EXPECT_THAT(Parse("[]").error().message, HasSubstr("no JSON object"));
  EXPECT_THAT(Parse("{").error().message, HasSubstr("no valid JSON"));
  EXPECT_THAT(Parse("{}").error().message, HasSubstr("describes no model"));
  EXPECT_THAT(Parse(R"({"model_type":"llama"})").error().message,
              HasSubstr("'vocab_size' is absent"));
  auto with = [](std::string_view from, std::string_view to) {
    std::string text = TestConfig("LlamaForCausalLM");
    text.replace(text.find(from), from.size(), to);
    Result<ModelConfig> config = Parse(text);
    return config.ok() ? "no error" : config.error().message;
  };
  EXPECT_THAT(with("\"hidden_size\":32", "\"hidden_size\":2000000000"), HasSubstr("hidden size"));
  EXPECT_THAT(with("\"hidden_size\":32", "\"hidden_size\":1e300"), HasSubstr("an integer"));
  EXPECT_THAT(with("\"num_hidden_layers\":2", "\"num_hidden_layers\":0"), HasSubstr("layers"));
  EXPECT_THAT(with("\"num_key_value_heads\":2", "\"num_key_value_heads\":3"),
              HasSubstr("4 heads and 3 KV heads"));
  EXPECT_THAT(with("\"eos_token_id\":2", "\"eos_token_id\":40"), HasSubstr("EOS id is 40"));
  EXPECT_THAT(with("\"head_dim\":8", "\"head_dim\":7"), HasSubstr("even number"));
}

void WriteDirectory(const TemporaryDirectory& directory, std::string_view hf_class) {
  WriteFile(directory.File("config.json"), TestConfig(hf_class, R"("tie_word_embeddings":true,)"));
  WriteFile(directory.File("model.safetensors"), SafetensorsBytes(TestTensors(hf_class)));
}

Result<Weights> Load(const ModelFiles& files) {
  base::ThreadTeam team(1);
  return LoadWeights(files, team, [](double) {});
}

float ValueAt(const kernels::PackedMatrix& matrix, int64_t row, int64_t col) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.DecodeRow(row, values.data());
  return values[static_cast<size_t>(col)];
}

class HfDirectoryTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(HfDirectoryTest, LoadsEveryTensorFromItsPlace) {
  TemporaryDirectory directory("hf");
  WriteDirectory(directory, GetParam());
  Result<ModelFiles> files = ModelFiles::Open(directory.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  Result<Weights> weights = Load(*files);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const LayerWeights& layer = weights->layers[1];
  const std::string prefix = "model.layers.1.";
  EXPECT_EQ(ValueAt(layer.down, 3, 5), TestValue(prefix + "mlp.down_proj.weight", 3 * 48 + 5));
  EXPECT_EQ(ValueAt(layer.o, 31, 31), TestValue(prefix + "self_attn.o_proj.weight", 1023));
  EXPECT_EQ(ValueAt(weights->output, 39, 1), TestValue("model.embed_tokens.weight", 39 * 32 + 1));
  const bool gemma = GetParam() == "Gemma2ForCausalLM";
  const float one = gemma ? 1.0f : 0.0f;
  EXPECT_EQ(weights->output_norm[7], TestValue("model.norm.weight", 7) + one);
  const char* ffn_norm =
      gemma ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  EXPECT_EQ(layer.ffn_norm[4], TestValue(prefix + ffn_norm, 4) + one);
  if (gemma) {
    EXPECT_EQ(layer.post_attention_norm[4],
              TestValue(prefix + "post_attention_layernorm.weight", 4) + one);
    EXPECT_EQ(layer.post_ffn_norm[4],
              TestValue(prefix + "post_feedforward_layernorm.weight", 4) + one);
  }
  if (GetParam() == "Phi3ForCausalLM") {
    const std::string qkv = prefix + "self_attn.qkv_proj.weight";
    EXPECT_EQ(ValueAt(layer.k, 2, 3), TestValue(qkv, (32 + 2) * 32 + 3));
    EXPECT_EQ(ValueAt(layer.v, 15, 0), TestValue(qkv, (48 + 15) * 32));
    EXPECT_EQ(ValueAt(layer.up, 0, 0), TestValue(prefix + "mlp.gate_up_proj.weight", 48 * 32));
  } else {
    EXPECT_EQ(ValueAt(layer.k, 2, 3), TestValue(prefix + "self_attn.k_proj.weight", 67));
    EXPECT_EQ(ValueAt(layer.up, 47, 31), TestValue(prefix + "mlp.up_proj.weight", 48 * 32 - 1));
  }
  if (GetParam() == "Qwen2ForCausalLM") {
    EXPECT_EQ(layer.v_bias[15], TestValue(prefix + "self_attn.v_proj.bias", 15));
  }
  if (GetParam() == "Qwen3ForCausalLM") {
    EXPECT_EQ(layer.k_norm[7], TestValue(prefix + "self_attn.k_norm.weight", 7));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, HfDirectoryTest,
                         ::testing::Values("LlamaForCausalLM", "MistralForCausalLM",
                                           "Qwen2ForCausalLM", "Qwen3ForCausalLM",
                                           "Phi3ForCausalLM", "Gemma2ForCausalLM"),
                         [](const auto& instance) { return std::string(instance.param); });

// The same model in two files and an index.
void WriteSharded(const TemporaryDirectory& directory) {
  WriteFile(directory.File("config.json"),
            TestConfig("LlamaForCausalLM", R"("tie_word_embeddings":true,)"));
  std::vector<TestTensor> tensors = TestTensors("LlamaForCausalLM");
  std::string map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    map += fmt::format("{}\"{}\":\"part-{}.safetensors\"", i == 0 ? "" : ",", tensors[i].name,
                       i < 7 ? 1 : 2);
  }
  WriteFile(directory.File("model.safetensors.index.json"),
            "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  WriteFile(directory.File("part-1.safetensors"),
            SafetensorsBytes({tensors.begin(), tensors.begin() + 7}));
  WriteFile(directory.File("part-2.safetensors"),
            SafetensorsBytes({tensors.begin() + 7, tensors.end()}));
}

TEST(HfShardsTest, AnIndexLeadsToAllParts) {
  TemporaryDirectory directory("shards");
  WriteSharded(directory);
  Result<ModelFiles> files = ModelFiles::Open(directory.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->shards(), 2);
  Result<Weights> weights = Load(*files);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(ValueAt(weights->layers[1].q, 1, 0),
            TestValue("model.layers.1.self_attn.q_proj.weight", 32));
}

TEST(HfShardsTest, AMissingPartAndAWrongIndexAreNamed) {
  TemporaryDirectory directory("broken-shards");
  WriteSharded(directory);
  const std::string index = ReadFile(directory.File("model.safetensors.index.json"));
  WriteFile(directory.File("model.safetensors.index.json"),
            "{\"weight_map\":{\"a\":\"part-1.safetensors\"}}");
  EXPECT_THAT(ModelFiles::Open(directory.path()).error().message, HasSubstr("promises tensor 'a'"));
  WriteFile(directory.File("model.safetensors.index.json"),
            "{\"weight_map\":{\"a\":\"../../etc/passwd\"}}");
  EXPECT_THAT(ModelFiles::Open(directory.path()).error().message,
              HasSubstr("no file of the directory"));
  WriteFile(directory.File("model.safetensors.index.json"), index);
  std::filesystem::remove(directory.File("part-2.safetensors"));
  EXPECT_THAT(ModelFiles::Open(directory.path()).error().message, HasSubstr("part-2.safetensors"));
}

TEST(HfDirectoryErrorsTest, MissingMisshapenAndUnknownTensorsAreNamed) {
  TemporaryDirectory directory("tensors");
  WriteDirectory(directory, "LlamaForCausalLM");
  auto error_with = [&](const std::vector<TestTensor>& tensors) {
    WriteFile(directory.File("model.safetensors"), SafetensorsBytes(tensors));
    Result<ModelFiles> files = ModelFiles::Open(directory.path());
    EXPECT_TRUE(files.ok()) << files.error().message;
    Result<Weights> weights = Load(*files);
    return weights.ok() ? "no error" : weights.error().message;
  };
  std::vector<TestTensor> tensors = TestTensors("LlamaForCausalLM");
  EXPECT_EQ(error_with(tensors), "no error");
  std::vector<TestTensor> missing(tensors.begin(), tensors.end() - 1);
  EXPECT_THAT(error_with(missing), HasSubstr("no tensor 'model.layers.1.mlp.down_proj.weight'"));
  std::vector<TestTensor> misshapen = tensors;
  misshapen.back().rows = 31;
  EXPECT_THAT(error_with(misshapen), HasSubstr("is 31 x 48; 32 x 48 is expected"));
  std::vector<TestTensor> more = tensors;
  more.push_back({"model.layers.0.self_attn.sinks", 0, 4});
  EXPECT_THAT(error_with(more), HasSubstr("'model.layers.0.self_attn.sinks'"));
  more.back() = {"model.layers.0.self_attn.rotary_emb.inv_freq", 0, 4};
  EXPECT_EQ(error_with(more), "no error");
}

TEST(HfDirectoryErrorsTest, TheGenerationConfigAndTemplateAreRead) {
  TemporaryDirectory directory("generation");
  WriteDirectory(directory, "LlamaForCausalLM");
  WriteFile(directory.File("generation_config.json"),
            R"({"eos_token_id":[3,4],"temperature":0.6,"top_p":0.9})");
  WriteFile(directory.File("tokenizer_config.json"),
            R"({"chat_template":[{"name":"tool_use","template":"T"},
                                 {"name":"default","template":"D"}]})");
  Result<ModelFiles> files = ModelFiles::Open(directory.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT(files->config()->eos_ids, ElementsAre(3, 4));
  EXPECT_EQ(files->generation_defaults().temperature, 0.6);
  EXPECT_EQ(files->generation_defaults().top_k, std::nullopt);
  EXPECT_EQ(files->chat_template(), "D");
  WriteFile(directory.File("chat_template.jinja"), "J");
  EXPECT_EQ(ModelFiles::Open(directory.path())->chat_template(), "J");
}

}  // namespace
}  // namespace quire::model
