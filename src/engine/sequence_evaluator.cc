#include "engine/sequence_evaluator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/engine_options.h"

namespace quire::engine {

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
  const size_t blocks = options.max_tokens / layout.block_size() + 1;
  QUIRE_ASSIGN_OR_RETURN(
      kvstore::KvStore store,
      kvstore::KvStore::Create(layout, blocks * layout.group_count() * layout.frame_bytes()));
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
                    .max_positions = options.max_tokens}) {
  int next = 0;
  const int blocks = store_.frames_total() / store_.layout().group_count();
  for (int group = 0; group < store_.layout().group_count(); ++group) {
    std::vector<FrameId>& frames = frames_.emplace_back();
    for (int block = 0; block < blocks; ++block) frames.push_back({next++});
  }
}

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
  std::vector<kvstore::BlockTable> tables;
  for (const std::vector<FrameId>& frames : frames_) tables.push_back({0, frames});
  std::vector<int> positions(count);
  std::iota(positions.begin(), positions.end(), 0);

  for (int first = 0; first < count; first += options_.chunk) {
    const int rows = std::min(options_.chunk, count - first);
    const kvstore::SequenceRun run{0, rows, first, tables};
    transformer_.Forward({.tokens = tokens.subspan(first, rows),
                          .positions = std::span(positions).subspan(first, rows),
                          .runs = {&run, 1},
                          .logit_rows = std::span(positions).first(rows)},
                         store_);
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
