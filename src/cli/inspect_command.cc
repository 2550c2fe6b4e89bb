// quire inspect: what a model file is, without loading it.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "kernels/kv_codec.h"
#include "kvstore/kv_layout.h"
#include "model/model_files.h"

namespace quire::cli {
namespace {

using boost::json::object;
using model::ModelConfig;
using model::ModelFiles;

constexpr int kDefaultBlockSize = 32;

object DescribeConfig(const ModelConfig& config) {
  int windows =
      static_cast<int>(std::count_if(config.sliding_windows.begin(), config.sliding_windows.end(),
                                     [](int window) { return window > 0; }));
  object out;
  out["architecture"] = config.architecture;
  out["name"] = config.name;
  out["layers"] = config.layers;
  out["hidden_size"] = config.hidden_size;
  out["q_heads"] = config.q_heads;
  out["kv_heads"] = config.kv_heads;
  out["head_dim"] = config.head_dim;
  out["ffn_size"] = config.ffn_size;
  out["vocab_size"] = config.vocab_size;
  out["context_length"] = config.context_length;
  out["window_layers"] = windows;
  out["rope_theta"] = config.rope.theta;
  out["tied_embeddings"] = config.tied_embeddings;
  return out;
}

// What a token costs in every codec, for keys and values alike, and the longest sequence that
// `memory` bytes hold, which the model's context does not bound.
Status DescribeKv(const ModelConfig& config, size_t memory, object& report) {
  object bytes;
  object longest;
  for (kernels::KvCodec codec : kernels::kAllKvCodecs) {
    QUIRE_ASSIGN_OR_RETURN(
        kvstore::KvLayout layout,
        kvstore::KvLayout::Create(model::KvGeometryOf(config), {codec, codec, kDefaultBlockSize}));
    const size_t frames =
        std::min<size_t>(memory / layout.frame_bytes(), std::numeric_limits<int>::max());
    bytes[kernels::Name(codec)] = layout.bytes_per_token();
    longest[kernels::Name(codec)] = layout.LongestSequence(
        static_cast<int>(frames), engine::EngineOptions().max_num_batched_tokens);
  }
  report["kv_bytes_per_token"] = std::move(bytes);
  report["kv_cache_memory"] = memory;
  report["kv_longest_context"] = std::move(longest);
  return Ok{};
}

struct TypeShare {
  int tensors = 0;
  uint64_t bytes = 0;
};

object DescribeTensors(const ModelFiles& files, bool list_all) {
  std::map<std::string, TypeShare> shares;
  uint64_t parameters = 0;
  boost::json::array all;
  for (const model::TensorInfo& tensor : files.ListTensors()) {
    TypeShare& share = shares[tensor.type];
    ++share.tensors;
    share.bytes += tensor.bytes;
    uint64_t values = 1;
    boost::json::array extents;
    for (int64_t extent : tensor.extents) {
      values *= static_cast<uint64_t>(extent);
      extents.push_back(extent);
    }
    parameters += values;
    if (list_all) {
      all.push_back({{"name", tensor.name}, {"type", tensor.type}, {"extents", extents}});
    }
  }
  object types;
  for (const auto& [type, share] : shares) {
    types[type] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
  }
  object out;
  out["parameters"] = parameters;
  out["tensor_types"] = std::move(types);
  if (list_all) out["tensors"] = std::move(all);
  return out;
}

object DescribeTokenizer(const text::Tokenizer& tokenizer) {
  bool bytes = tokenizer.kind() == text::TokenizerKind::kByteLevelBpe;
  object out;
  out["kind"] = bytes ? "byte-level BPE" : "SentencePiece BPE";
  out["vocab_size"] = tokenizer.vocab_size();
  out["adds_bos"] = tokenizer.adds_bos();
  if (tokenizer.bos()) out["bos"] = tokenizer.TokenPiece(*tokenizer.bos());
  if (tokenizer.eos()) out["eos"] = tokenizer.TokenPiece(*tokenizer.eos());
  return out;
}

class InspectCommand : public Command {
 public:
  std::string_view name() const override { return "inspect"; }
  std::string_view summary() const override {
    return "Shows what a model is: architecture, sizes, tensor types, KV bytes per token, "
           "tokenizer.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("MODEL", &path_, "The model; without it, the one of -m.");
    model_.Declare(flags);
    flags
        .Add("kv-cache-memory", &kv_cache_memory_,
             "The KV memory whose longest context is told; by default a quarter of free memory.")
        .Metavar("SIZE");
    flags.Add("tensors", &tensors_, "List every tensor.");
    flags.Add("template", &template_, "Print the chat template.");
    flags.Example("quire inspect model.gguf", "One page about a model");
    flags.Example("quire inspect model.gguf --json --tensors", "Everything, for a program");
  }

  Status Run(const CommandContext& context) override {
    std::string path = path_;
    if (path.empty()) {
      QUIRE_ASSIGN_OR_RETURN(path, model_.Path());
    }
    QUIRE_ASSIGN_OR_RETURN(ModelFiles files, ModelFiles::Open(path));
    if (template_ && !context.json) {
      if (!files.chat_template()) {
        return MakeError(ErrorKind::kNotFound, "{} has no chat template.", path);
      }
      return WriteOut(*files.chat_template());
    }
    QUIRE_ASSIGN_OR_RETURN(object report, Report(files));
    if (context.json) return WriteJson(report);
    return WriteOut(AsText(report, context.terminal));
  }

 private:
  // As for run and serve where nothing else is said: a quarter of the memory that is available.
  size_t KvMemory() const {
    if (kv_cache_memory_) return static_cast<size_t>(kv_cache_memory_->bytes);
    return engine::AvailableMemoryBytes() / 4;
  }

  // What the file has; a part that it lacks or that is not supported is told, not fatal.
  Result<object> Report(const ModelFiles& files) const {
    object report;
    report["path"] = files.path();
    report["format"] = files.format();
    report["file_bytes"] = files.file_bytes();
    report["shards"] = files.shards();
    if (files.config().ok()) {
      report["config"] = DescribeConfig(*files.config());
      QUIRE_RETURN_IF_ERROR(DescribeKv(*files.config(), KvMemory(), report));
    } else {
      report["config_error"] = files.config().error().message;
    }
    for (auto& member : DescribeTensors(files, tensors_)) report[member.key()] = member.value();
    Result<text::Tokenizer> tokenizer = engine::LoadTokenizer(files);
    if (tokenizer.ok()) {
      report["tokenizer"] = DescribeTokenizer(*tokenizer);
    } else {
      report["tokenizer_error"] = tokenizer.error().message;
    }
    report["chat_template"] = files.chat_template().has_value();
    if (template_ && files.chat_template()) report["chat_template_source"] = *files.chat_template();
    return report;
  }

  static std::string Show(const boost::json::value& value) {
    if (value.is_string()) return std::string(value.as_string());
    if (value.is_double()) return fmt::format("{}", value.as_double());
    return boost::json::serialize(value);
  }

  static void AddConfig(const object& report, std::string& text, const Terminal& terminal) {
    auto line = [&](std::string_view label, const std::string& value) {
      text += terminal.Out(Style::kBold, fmt::format("{:<20}", label)) + value + "\n";
    };
    if (const auto* error = report.if_contains("config_error")) {
      line("configuration", Show(*error));
      return;
    }
    const object& config = report.at("config").as_object();
    auto field = [&](const char* key) { return Show(config.at(key)); };
    line("architecture",
         field("architecture") + (field("name").empty() ? "" : ", " + field("name")));
    line("layers",
         field("layers") + " of " + field("hidden_size") + " channels, MLP " + field("ffn_size"));
    line("heads", field("q_heads") + " for queries, " + field("kv_heads") +
                      " for keys and values, of " + field("head_dim") + " channels");
    line("context", field("context_length") + " tokens, rope theta " + field("rope_theta"));
    if (config.at("window_layers").as_int64() > 0) {
      line("sliding window", "in " + field("window_layers") + " layers");
    }
    line("KV memory", base::FormatBytes(report.at("kv_cache_memory").to_number<int64_t>()) +
                          " (--kv-cache-memory asks about other sizes)");
    const object& longest = report.at("kv_longest_context").as_object();
    for (const auto& codec : report.at("kv_bytes_per_token").as_object()) {
      line("KV as " + std::string(codec.key()),
           fmt::format("{:.0f} bytes per token, the memory holds {} tokens",
                       codec.value().to_number<double>(), Show(longest.at(codec.key()))));
    }
  }

  static std::string AsText(const object& report, const Terminal& terminal) {
    std::string text;
    auto line = [&](std::string_view label, const std::string& value) {
      text += terminal.Out(Style::kBold, fmt::format("{:<20}", label)) + value + "\n";
    };
    line("model", Show(report.at("path")));
    line("format", Show(report.at("format")) + ", " +
                       base::FormatBytes(report.at("file_bytes").to_number<int64_t>()));
    AddConfig(report, text, terminal);
    line("parameters",
         fmt::format("{:.1f} million", report.at("parameters").to_number<double>() / 1e6));
    for (const auto& type : report.at("tensor_types").as_object()) {
      line("tensors, " + std::string(type.key()),
           Show(type.value().at("tensors")) + ", " +
               base::FormatBytes(type.value().at("bytes").to_number<int64_t>()));
    }
    if (const auto* tokenizer = report.if_contains("tokenizer")) {
      std::string about =
          Show(tokenizer->at("kind")) + ", " + Show(tokenizer->at("vocab_size")) + " tokens";
      for (const char* key : {"bos", "eos"}) {
        const auto* token = tokenizer->as_object().if_contains(key);
        if (token != nullptr) about += fmt::format(", {} {}", key, Show(*token));
      }
      line("tokenizer", about);
    } else {
      line("tokenizer", Show(report.at("tokenizer_error")));
    }
    line("chat template",
         report.at("chat_template").as_bool() ? "yes (--template prints it)" : "none");
    if (const auto* tensors = report.if_contains("tensors")) {
      for (const auto& tensor : tensors->as_array()) {
        text += fmt::format("  {:<40} {:<6} {}\n", Show(tensor.at("name")), Show(tensor.at("type")),
                            Show(tensor.at("extents")));
      }
    }
    return text;
  }

  std::string path_;
  ModelFlag model_;
  std::optional<base::ByteSize> kv_cache_memory_;
  bool tensors_ = false;
  bool template_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() {
  return std::make_unique<InspectCommand>();
}

}  // namespace quire::cli
