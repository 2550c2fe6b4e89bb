// Damaged model files of every kind: an error or success, never a crash, a hang or an allocation
// larger than the file warrants.
#include <cstdio>
#include <limits>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/rng.h"
#include "model/model_files.h"
#include "model/random_model.h"
#include "model/test_files.h"
#include "model/weights.h"
#include "testing/sanitized.h"

#ifdef QUIRE_SANITIZED
// The shadow memory needs the whole address space: here the allocator itself refuses.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256";
}
#endif

namespace quire::model {
namespace {

constexpr int kMutations = 1000;
constexpr uint64_t kSeed = 20240611;

// While it lives, the process can map at most 256 MiB more: a larger allocation fails the test.
class AddressSpaceLimit {
 public:
  AddressSpaceLimit() {
    if (quire::testing::kSanitized) return;
    ::getrlimit(RLIMIT_AS, &before_);
    long pages = 0;
    std::FILE* statm = std::fopen("/proc/self/statm", "r");
    if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) pages = 1 << 20;
    if (statm != nullptr) std::fclose(statm);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) +
                     (rlim_t{256} << 20);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() {
    if (!quire::testing::kSanitized) ::setrlimit(RLIMIT_AS, &before_);
  }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

void FlipBits(base::CounterRng& rng, std::string& bytes) {
  for (uint64_t flips = 1 + rng.NextBelow(8); flips > 0 && !bytes.empty(); --flips) {
    bytes[rng.NextBelow(bytes.size())] ^= static_cast<char>(1 << rng.NextBelow(8));
  }
}

// Overwrites with a number that lengths and offsets like to overflow with.
void PlantNumber(base::CounterRng& rng, std::string& bytes) {
  constexpr uint64_t kNumbers[] = {0,
                                   1,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   uint64_t{1} << 40,
                                   uint64_t{1} << 62,
                                   std::numeric_limits<uint64_t>::max()};
  if (bytes.size() < 8) return;
  const uint64_t number = kNumbers[rng.NextBelow(std::size(kNumbers))];
  const size_t width = rng.NextBelow(2) == 0 ? 4 : 8;
  std::memcpy(bytes.data() + rng.NextBelow(bytes.size() - 7), &number, width);
}

// The same for text: a run of digits becomes another number.
void PlantDigits(base::CounterRng& rng, std::string& bytes) {
  constexpr const char* kNumbers[] = {"0",     "-1",   "2147483647", "18446744073709551615",
                                      "1e308", "null", "true",       "[]",
                                      "{}",    "\"x\""};
  const size_t start = rng.NextBelow(bytes.size());
  const size_t digit = bytes.find_first_of("0123456789", start);
  if (digit == std::string::npos) return;
  size_t end = bytes.find_first_not_of("0123456789", digit);
  if (end == std::string::npos) end = bytes.size();
  bytes.replace(digit, end - digit, kNumbers[rng.NextBelow(std::size(kNumbers))]);
}

std::string Mutate(std::string bytes, uint64_t seed) {
  base::CounterRng rng(kSeed, seed, 0);
  // Most damage belongs where the structure is, at the front.
  const uint64_t kind = rng.NextBelow(8);
  std::string front = bytes.substr(0, std::min<size_t>(bytes.size(), 4096));
  switch (kind) {
    case 0:
      bytes.resize(rng.NextBelow(bytes.size()));
      return bytes;
    case 1:
      for (char& byte : bytes) byte = static_cast<char>(rng.NextU64());
      return bytes;
    case 2:
      FlipBits(rng, bytes);
      return bytes;
    case 3:
    case 4:
      FlipBits(rng, front);
      break;
    case 5:
    case 6:
      PlantNumber(rng, front);
      break;
    default:
      PlantDigits(rng, front);
  }
  return front + bytes.substr(std::min<size_t>(bytes.size(), 4096));
}

// Opens and, if that works, loads everything.
void Exercise(const std::string& path, base::ThreadTeam& team, int& loaded) {
  Result<ModelFiles> files = ModelFiles::Open(path);
  if (!files.ok()) {
    EXPECT_FALSE(files.error().message.empty());
    return;
  }
  Result<Weights> weights = LoadWeights(*files, team, [](double) {});
  if (weights.ok()) ++loaded;
}

// Writes each mutation of `bytes` to `file` and opens `model`.
void ExerciseMutations(const std::string& bytes, const std::string& file,
                       const std::string& model) {
  base::ThreadTeam team(1);
  int loaded = 0;
  WriteFile(file, bytes);
  Exercise(model, team, loaded);
  ASSERT_EQ(loaded, 1) << "the undamaged model must load";
  AddressSpaceLimit limit;
  for (uint64_t seed = 0; seed < kMutations; ++seed) {
    SCOPED_TRACE(fmt::format("mutation {} of seed {}", seed, kSeed));
    WriteFile(file, Mutate(bytes, seed));
    Exercise(model, team, loaded);
  }
  EXPECT_LT(loaded, kMutations * 4 / 5) << "most damage must be noticed";
}

TEST(BadInputTest, DamagedGgufFiles) {
  TemporaryDirectory directory("gguf");
  RandomModelOptions options{.sizes = {.name = "tiny",
                                       .vocab_size = 320,
                                       .hidden_size = 32,
                                       .layers = 1,
                                       .q_heads = 4,
                                       .kv_heads = 2,
                                       .ffn_size = 32,
                                       .context_length = 64},
                             .type = DType::kQ4_0,
                             .seed = 0};
  base::ThreadTeam team(1);
  ASSERT_TRUE(WriteRandomModel(options, directory.File("m.gguf"), team, [](double) {}).ok());
  const std::string bytes = ReadFile(directory.File("m.gguf"));
  ExerciseMutations(bytes, directory.File("m.gguf"), directory.File("m.gguf"));
}

class DamagedDirectory : public ::testing::Test {
 protected:
  DamagedDirectory() : directory_("directory") {
    WriteFile(directory_.File("config.json"),
              TestConfig("LlamaForCausalLM", R"("tie_word_embeddings":true,
                  "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
                  "high_freq_factor":4.0,"original_max_position_embeddings":8192},)"));
    WriteFile(directory_.File("model.safetensors"),
              SafetensorsBytes(TestTensors("LlamaForCausalLM")));
  }

  void Damage(std::string_view name) {
    const std::string file = directory_.File(name);
    ExerciseMutations(ReadFile(file), file, directory_.path());
  }

  TemporaryDirectory directory_;
};

TEST_F(DamagedDirectory, Safetensors) {
  Damage("model.safetensors");
}

TEST_F(DamagedDirectory, Config) {
  Damage("config.json");
}

TEST_F(DamagedDirectory, Index) {
  std::filesystem::rename(directory_.File("model.safetensors"),
                          directory_.File("part.safetensors"));
  std::string map;
  for (const TestTensor& tensor : TestTensors("LlamaForCausalLM")) {
    map += fmt::format("{}\"{}\":\"part.safetensors\"", map.empty() ? "" : ",", tensor.name);
  }
  WriteFile(directory_.File("model.safetensors.index.json"), "{\"weight_map\":{" + map + "}}");
  Damage("model.safetensors.index.json");
}

TEST_F(DamagedDirectory, GenerationConfig) {
  WriteFile(directory_.File("generation_config.json"),
            R"({"eos_token_id":[2,3],"temperature":0.7,"top_k":40,"do_sample":true})");
  Damage("generation_config.json");
}

}  // namespace
}  // namespace quire::model
