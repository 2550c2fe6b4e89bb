// ModelRunner: a model with a small KV arena, driven step by step without scheduler or engine, so
// that a test decides what a batch holds.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kvstore/kv_store.h"
#include "model/model_files.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace quire::testing {

// One row of logits per token.
using LogitsRows = std::vector<std::vector<float>>;

struct ModelRunnerOptions {
  kvstore::KvFormat format;
  int threads = 1;
  int max_rows = 512;
  int max_sequences = 64;
  int max_tokens = 1024;  // of a sequence
  const kernels::KernelTable* kernels = &kernels::DefaultKernels();
};

// A sequence under way: its tokens, and how many of them have been computed.
struct RunnerSequence {
  std::vector<TokenId> tokens;
  int computed = 0;
  std::vector<std::vector<FrameId>> frames;  // [layer groups][blocks]
  LogitsRows logits;                         // [computed]
};

class ModelRunner {
 public:
  ModelRunner(const std::string& path, const ModelRunnerOptions& options)
      : options_(options), team_(options.threads) {
    auto files = model::ModelFiles::Open(path);
    QUIRE_CHECK(files.ok());
    files_ = std::make_unique<model::ModelFiles>(std::move(files).value());
    auto weights = model::LoadWeights(*files_, team_, [](double) {});
    if (!weights.ok()) base::CheckFailed(__FILE__, __LINE__, weights.error().message);
    weights_ = std::make_unique<model::Weights>(std::move(weights).value());
    const model::ModelConfig& config = *files_->config();
    auto layout = kvstore::KvLayout::Create(
        {config.kv_heads, config.head_dim, config.sliding_windows}, options.format);
    QUIRE_CHECK(layout.ok());
    const int64_t blocks = static_cast<int64_t>(options.max_sequences) *
                           (options.max_tokens / options.format.block_size + 1);
    const int64_t frames = blocks * layout->group_count();
    auto store = kvstore::KvStore::Create(*layout, frames * layout->frame_bytes());
    QUIRE_CHECK(store.ok());
    store_ = std::make_unique<kvstore::KvStore>(std::move(store).value());
    transformer_ = std::make_unique<model::Transformer>(
        model::TransformerParts{config, *weights_, *options.kernels, team_}, *layout,
        model::StepLimits{options.max_rows, options.max_sequences, 64, options.max_tokens});
    // Descending, so that a sequence's frames are never in the arena's order.
    for (int frame = static_cast<int>(frames) - 1; frame >= 0; --frame) free_.push_back({frame});
    std::reverse(free_.begin(), free_.end());
  }

  const model::ModelConfig& config() const { return *files_->config(); }

  RunnerSequence Start(std::vector<TokenId> tokens) {
    RunnerSequence sequence;
    sequence.tokens = std::move(tokens);
    sequence.frames.resize(store_->layout().group_count());
    return sequence;
  }

  // Computes the next counts[i] tokens of sequences[i], all in one step, with logits of every row.
  void Step(const std::vector<RunnerSequence*>& sequences, const std::vector<int>& counts) {
    std::vector<TokenId> tokens;
    std::vector<int> positions, logit_rows;
    std::vector<std::vector<kvstore::BlockTable>> tables;
    std::vector<kvstore::SequenceRun> runs;
    for (size_t i = 0; i < sequences.size(); ++i) {
      RunnerSequence& sequence = *sequences[i];
      runs.push_back({static_cast<int>(tokens.size()), counts[i], sequence.computed, {}});
      for (int token = 0; token < counts[i]; ++token) {
        logit_rows.push_back(static_cast<int>(tokens.size()));
        positions.push_back(sequence.computed + token);
        tokens.push_back(sequence.tokens[sequence.computed + token]);
      }
      tables.push_back(TablesFor(sequence, sequence.computed + counts[i]));
    }
    for (size_t i = 0; i < runs.size(); ++i) runs[i].tables = tables[i];
    transformer_->Forward({tokens, positions, runs, logit_rows}, *store_);
    for (size_t i = 0, row = 0; i < sequences.size(); ++i) {
      for (int token = 0; token < counts[i]; ++token, ++row) {
        const auto logits = transformer_->Logits(static_cast<int>(row), 1);
        sequences[i]->logits.emplace_back(logits.row(0), logits.row(0) + logits.cols);
      }
      sequences[i]->computed += counts[i];
    }
  }

  // The whole sequence in chunks.
  LogitsRows Run(std::vector<TokenId> tokens, int chunk) {
    RunnerSequence sequence = Start(std::move(tokens));
    while (sequence.computed < static_cast<int>(sequence.tokens.size())) {
      const int left = static_cast<int>(sequence.tokens.size()) - sequence.computed;
      Step({&sequence}, {std::min(chunk, left)});
    }
    Release(sequence);
    return sequence.logits;
  }

  void Release(RunnerSequence& sequence) {
    for (auto& frames : sequence.frames) {
      free_.insert(free_.end(), frames.begin(), frames.end());
      frames.clear();
    }
  }

 private:
  std::vector<kvstore::BlockTable> TablesFor(RunnerSequence& sequence, int tokens) {
    const int block_size = options_.format.block_size;
    std::vector<kvstore::BlockTable> tables;
    for (auto& frames : sequence.frames) {
      while (static_cast<int>(frames.size()) * block_size < tokens) {
        QUIRE_CHECK(!free_.empty());
        frames.push_back(free_.back());
        free_.pop_back();
      }
      tables.push_back({0, frames});
    }
    return tables;
  }

  ModelRunnerOptions options_;
  base::ThreadTeam team_;
  std::unique_ptr<model::ModelFiles> files_;
  std::unique_ptr<model::Weights> weights_;
  std::unique_ptr<kvstore::KvStore> store_;
  std::unique_ptr<model::Transformer> transformer_;
  std::vector<FrameId> free_;
};

}  // namespace quire::testing
