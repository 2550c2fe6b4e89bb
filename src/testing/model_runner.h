// ModelRunner: a model with a small KV arena, driven step by step without scheduler or engine, so
// that a test decides what a batch holds.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kv/kv_cache.h"
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

// Any ids of the bundled vocabulary.
inline std::vector<TokenId> RandomTokens(int count, uint64_t seed) {
  base::CounterRng rng(seed, 0, 0);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.NextBelow(4000));
  return tokens;
}

// A sequence under way: its tokens, and how many of them have been computed.
struct RunnerSequence {
  std::vector<TokenId> tokens;
  int computed = 0;
  kv::Lease lease;
  LogitsRows logits;  // [computed]
  // Of streaming: tokens that are gone behind the first `sinks`.
  int sinks = 0;
  int evicted = 0;
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
    kv::KvCacheOptions cache = layout->CacheOptions(1);
    cache.max_leases = options.max_sequences;
    cache.max_lease_tokens = options.max_tokens;
    cache.prefix_caching = kv::PrefixCaching::kOff;
    const size_t frames =
        kv::KvCache::FramesForSequence(cache, options.max_tokens, options.max_rows);
    auto store =
        kvstore::KvStore::Create(*layout, frames * options.max_sequences * layout->frame_bytes());
    QUIRE_CHECK(store.ok());
    store_ = std::make_unique<kvstore::KvStore>(std::move(store).value());
    cache.frames = store_->frames_total();
    cache_ = std::make_unique<kv::KvCache>(cache);
    transformer_ = std::make_unique<model::Transformer>(
        model::TransformerParts{config, *weights_, *options.kernels, team_}, *layout,
        model::StepLimits{options.max_rows, options.max_sequences, 64, options.max_tokens});
  }

  const model::ModelConfig& config() const { return *files_->config(); }

  RunnerSequence Start(std::vector<TokenId> tokens) {
    RunnerSequence sequence;
    sequence.tokens = std::move(tokens);
    return sequence;
  }

  // Computes all sequences to their ends in steps that mix decodes with prefill chunks of up to
  // 2 * chunk + 1 tokens, and releases them.
  void RunTogether(std::vector<RunnerSequence>& sequences, int chunk) {
    std::vector<RunnerSequence*> batch;
    for (RunnerSequence& sequence : sequences) batch.push_back(&sequence);
    base::CounterRng rng(3, 0, 0);
    while (!batch.empty()) {
      std::vector<int> counts;
      for (const RunnerSequence* sequence : batch) {
        const int left = static_cast<int>(sequence->tokens.size()) - sequence->computed;
        counts.push_back(std::min<int>(left, 1 + static_cast<int>(rng.NextBelow(3)) * chunk));
      }
      Step(batch, counts);
      std::erase_if(batch, [](const RunnerSequence* sequence) {
        return sequence->computed == static_cast<int>(sequence->tokens.size());
      });
    }
    for (RunnerSequence& sequence : sequences) Release(sequence);
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
        const int slot = sequence.computed + token;
        positions.push_back(slot < sequence.sinks ? slot : slot + sequence.evicted);
        tokens.push_back(sequence.tokens[sequence.computed + token]);
      }
      runs.back().sinks = sequence.sinks;
      runs.back().evicted = sequence.evicted;
      tables.push_back(TablesFor(sequence, sequence.computed + counts[i]));
    }
    for (size_t i = 0; i < runs.size(); ++i) runs[i].tables = tables[i];
    transformer_->Forward({tokens, positions, runs, logit_rows}, *store_);
    for (size_t i = 0, row = 0; i < sequences.size(); ++i) {
      for (int token = 0; token < counts[i]; ++token, ++row) {
        const auto logits = transformer_->Logits(static_cast<int>(row), 1);
        sequences[i]->logits.emplace_back(logits.row(0), logits.row(0) + logits.cols);
      }
      RunnerSequence& sequence = *sequences[i];
      sequence.computed += counts[i];
      cache_->Commit(sequence.lease, std::span(sequence.tokens).first(sequence.computed));
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

  void Release(RunnerSequence& sequence) { sequence.lease = kv::Lease(); }

 private:
  std::vector<kvstore::BlockTable> TablesFor(RunnerSequence& sequence, int tokens) {
    if (!sequence.lease.held()) {
      auto lease = cache_->Reserve(cache_->NoMatch({}), tokens);
      QUIRE_CHECK(lease.has_value());
      sequence.lease = *std::move(lease);
    }
    QUIRE_CHECK(cache_->Extend(sequence.lease, tokens));
    std::vector<kvstore::BlockTable> tables;
    for (int table = 0; table < cache_->groups(); ++table) {
      tables.push_back(kvstore::TableOf(sequence.lease, table));
    }
    return tables;
  }

  ModelRunnerOptions options_;
  base::ThreadTeam team_;
  std::unique_ptr<model::ModelFiles> files_;
  std::unique_ptr<model::Weights> weights_;
  std::unique_ptr<kvstore::KvStore> store_;
  std::unique_ptr<kv::KvCache> cache_;
  std::unique_ptr<model::Transformer> transformer_;
};

}  // namespace quire::testing
