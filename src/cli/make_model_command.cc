// quire make-model: a GGUF file of random weights, for benchmarks.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <boost/json/object.hpp>

#include "base/thread_team.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "model/random_model.h"
#include "tensor/dtype.h"

namespace quire::cli {
namespace {

using model::ShapeSizes;

class MakeModelCommand : public Command {
 public:
  std::string_view name() const override { return "make-model"; }
  std::string_view summary() const override {
    return "Writes a model of random weights in a known shape: speed depends on shapes alone.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("OUTPUT", &output_, "The GGUF file to write.").Required();
    flags.Add("shape", &shape_, "A known model's shape; the sizes below change it.")
        .OneOf(model::ShapeNames());
    flags.Add("type", &type_, "Type of the matrices.")
        .OneOf({"F32", "F16", "BF16", "Q8_0", "Q4_0"});
    flags.Add("seed", &seed_, "The same seed gives the same file on any machine.");
    flags.Add("force", &force_, "Overwrite an existing file.");
    flags.Group("Sizes");
    flags.Add("architecture", &architecture_, "llama, qwen2, qwen3, ...");
    flags.Add("vocab-size", &vocab_size_, "Tokens of the made-up vocabulary.").AtLeast(1);
    flags.Add("hidden-size", &hidden_size_, "Channels of the residual stream.").AtLeast(1);
    flags.Add("layers", &layers_, "Layers.").AtLeast(1);
    flags.Add("q-heads", &q_heads_, "Query heads.").AtLeast(1);
    flags.Add("kv-heads", &kv_heads_, "Key and value heads.").AtLeast(1);
    flags.Add("head-dim", &head_dim_, "Channels of a head.").AtLeast(1);
    flags.Add("ffn-size", &ffn_size_, "Channels inside the MLP.").AtLeast(1);
    flags.Add("context-length", &context_length_, "Positions the model claims to know.").AtLeast(1);
    flags.Example("quire make-model --shape qwen2.5-0.5b --type Q8_0 bench.gguf",
                  "A 0.5B model for a benchmark");
    flags.Example("quire make-model --shape llama-3.1-8b --layers 4 --type Q4_0 slim.gguf",
                  "An 8B model's geometry in four layers");
  }

  Status Run(const CommandContext& context) override {
    model::RandomModelOptions options;
    QUIRE_ASSIGN_OR_RETURN(options.sizes, Sizes());
    options.type = *DTypeNamed(type_);  // OneOf admits known types only
    options.seed = seed_;
    std::error_code error;
    if (!force_ && std::filesystem::exists(output_, error)) {
      return MakeError(ErrorKind::kUsage, "{} exists; --force overwrites it.", output_);
    }
    if (std::filesystem::exists(output_, error) &&
        !std::filesystem::is_regular_file(output_, error)) {
      return MakeError(ErrorKind::kUsage, "{} is no file that could be overwritten.", output_);
    }
    base::ThreadTeam team(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    {
      ProgressBar bar(context.terminal, {.label = "make-model", .total = 100, .unit = "%"});
      QUIRE_RETURN_IF_ERROR(model::WriteRandomModel(options, output_, team, [&](double share) {
        bar.Update(static_cast<int64_t>(share * 100.0));
      }));
    }
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(output_, error));
    if (!context.json) {
      return WriteOut(fmt::format("{}: {}, {}\n", output_, type_, base::FormatBytes(bytes)));
    }
    boost::json::object result;
    result["path"] = output_;
    result["type"] = type_;
    result["seed"] = seed_;
    result["bytes"] = bytes;
    return WriteJson(result);
  }

 private:
  Result<ShapeSizes> Sizes() const {
    ShapeSizes sizes;
    if (!shape_.empty()) {
      QUIRE_ASSIGN_OR_RETURN(sizes, model::NamedShape(shape_));
    } else if (!hidden_size_ || !layers_ || !q_heads_ || !ffn_size_ || !vocab_size_) {
      return MakeError(ErrorKind::kUsage,
                       "give --shape, or all of --vocab-size, --hidden-size, --layers, --q-heads "
                       "and --ffn-size.");
    }
    if (!architecture_.empty()) sizes.architecture = architecture_;
    auto change = [](int& size, const std::optional<int>& given) { size = given.value_or(size); };
    change(sizes.vocab_size, vocab_size_);
    change(sizes.hidden_size, hidden_size_);
    change(sizes.layers, layers_);
    change(sizes.q_heads, q_heads_);
    change(sizes.kv_heads, kv_heads_);
    change(sizes.head_dim, head_dim_);
    change(sizes.ffn_size, ffn_size_);
    change(sizes.context_length, context_length_);
    return sizes;
  }

  std::string output_;
  std::string shape_;
  std::string type_ = "Q8_0";
  uint64_t seed_ = 0;
  bool force_ = false;
  std::string architecture_;
  std::optional<int> vocab_size_;
  std::optional<int> hidden_size_;
  std::optional<int> layers_;
  std::optional<int> q_heads_;
  std::optional<int> kv_heads_;
  std::optional<int> head_dim_;
  std::optional<int> ffn_size_;
  std::optional<int> context_length_;
};

}  // namespace

std::unique_ptr<Command> MakeMakeModelCommand() {
  return std::make_unique<MakeModelCommand>();
}

}  // namespace quire::cli
