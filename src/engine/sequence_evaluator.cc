#include "engine/sequence_evaluator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/engine_options.h"

namespace quire::engine {

namespace {

// One sequence that shares nothing.
kv::KvCacheOptions CacheOptions(const kvstore::KvLayout& layout, int frames, int max_tokens) {
  kv::KvCacheOptions options = layout.CacheOptions(frames);
  options.max_leases = 1;
  options.max_lease_tokens = max_tokens;
  options.prefix_caching = kv::PrefixCaching::kOff;
  return options;
}

}  // namespace

Result<std::unique_ptr<SequenceEvaluator>> SequenceEvaluator::Create(
    const LoadedModel& model, const EvaluatorOptions& options, base::ThreadTeam& team) {
  if (options.max_tokens > model.config().context_length) {
    return MakeError(ErrorKind::kUsage,
                     "a sequence of {} tokens is longer than the model's context of {}",
                     options.max_tokens, model.config().context_length);
  }
  QUIRE_ASSIGN_OR_RETURN(
      const kvstore::KvLayout layout,
      kvstore::KvLayout::Create(model::KvGeometryOf(model.config()), options.kv_format));
  const int frames = kv::KvCache::FramesForSequence(CacheOptions(layout, 1, options.max_tokens),
                                                    std::max(1, options.max_tokens), options.chunk);
  QUIRE_ASSIGN_OR_RETURN(kvstore::KvStore store,
                         kvstore::KvStore::Create(layout, frames * layout.frame_bytes()));
  return std::make_unique<SequenceEvaluator>(model, options, std::move(store), team);
}

SequenceEvaluator::SequenceEvaluator(const LoadedModel& model, const EvaluatorOptions& options,
                                     kvstore::KvStore store, base::ThreadTeam& team)
    : model_(model),
      options_(options),
      store_(std::move(store)),
      transformer_({model.config(), model.weights(), kernels::DefaultKernels(), team},
                   store_.layout(),
                   {.rows = options.chunk,
                    .sequences = 1,
                    .logit_rows = std::min(options.chunk, 64),
                    .max_positions = options.max_tokens}),
      cache_(
          CacheOptions(store_.layout(), store_.frames_total(), std::max(1, options.max_tokens))) {}

Status SequenceEvaluator::Evaluate(
    std::span<const TokenId> tokens,
    base::FunctionRef<void(int position, std::span<const float> logits)> sink) {
  const int count = static_cast<int>(tokens.size());
  if (count > options_.max_tokens) {
    return MakeError(ErrorKind::kUsage, "{} tokens are more than the {} that were announced", count,
                     options_.max_tokens);
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= model_.config().vocab_size) {
      return MakeError(ErrorKind::kUsage, "token id {} is outside the model's vocabulary of {}",
                       token, model_.config().vocab_size);
    }
  }
  std::vector<kvstore::BlockTable> tables(store_.layout().table_count());
  std::vector<int> positions(count);
  std::iota(positions.begin(), positions.end(), 0);

  if (count == 0) return Ok{};
  std::optional<kv::Lease> lease =
      cache_.Reserve(cache_.NoMatch({}), std::min(options_.chunk, count));
  QUIRE_CHECK(lease.has_value());
  for (int first = 0; first < count; first += options_.chunk) {
    const int rows = std::min(options_.chunk, count - first);
    QUIRE_CHECK(cache_.Extend(*lease, first + rows));
    for (int table = 0; table < static_cast<int>(tables.size()); ++table) {
      tables[table] = kvstore::TableOf(*lease, table);
    }
    const kvstore::SequenceRun run{0, rows, first, tables};
    transformer_.Forward({.tokens = tokens.subspan(first, rows),
                          .positions = std::span(positions).subspan(first, rows),
                          .runs = {&run, 1},
                          .logit_rows = std::span(positions).first(rows)},
                         store_);
    cache_.Commit(*lease, tokens.first(first + rows));
    const int slice_rows = std::min(options_.chunk, 64);
    for (int row = 0; row < rows; row += slice_rows) {
      const int slice = std::min(slice_rows, rows - row);
      const MatrixView<const float> logits = transformer_.Logits(row, slice);
      for (int i = 0; i < slice; ++i) {
        sink(first + row + i, {logits.row(i), static_cast<size_t>(logits.cols)});
      }
    }
  }
  return Ok{};
}

}  // namespace quire::engine
