#include "kernels/matmul.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/matmul_kernels.h"

namespace quire::kernels {
namespace {

// Large enough to pay for fetching the next chunk, small enough to balance the threads.
constexpr int64_t kChunkBytes = 64 * 1024;
constexpr int64_t kChunksPerThread = 8;

void RunPanel(const KernelTable& kernels, const PackedActivations& x, const MatmulJob& job,
              int64_t panel) {
  const PackedMatrix& weights = *job.weights;
  const int64_t first_row = panel * kPanelRows;
  const PanelTask task = {
      .type = weights.type(),
      .cols = weights.cols(),
      .panel = weights.panel(panel),
      .x = x.values(),
      .blocks = IsQuantized(weights.type()) ? x.blocks() : nullptr,
      .blocks_stride = x.cols() / kActivationBlock,
      .out = job.out.data + first_row,
      .out_stride = job.out.stride,
      .rows = static_cast<int>(std::min<int64_t>(kPanelRows, weights.rows() - first_row)),
      .bias = job.bias == nullptr ? nullptr : job.bias + first_row,
  };
  kernels.matmul->panel[static_cast<int>(weights.type())](task);
}

void CheckJob(const PackedActivations& x, const MatmulJob& job) {
  QUIRE_CHECK_EQ(job.weights->cols(), x.cols());
  QUIRE_CHECK_EQ(job.out.rows, x.tokens());
  QUIRE_CHECK_EQ(job.out.cols, job.weights->rows());
  QUIRE_CHECK(!IsQuantized(job.weights->type()) || x.blocks() != nullptr);
}

}  // namespace

ActivationForm ActivationFormFor(DType weights) {
  return IsQuantized(weights) ? ActivationForm::kQuantized : ActivationForm::kFloat;
}

ActivationForm ActivationFormFor(std::span<const PackedMatrix* const> weights) {
  for (const PackedMatrix* matrix : weights) {
    if (IsQuantized(matrix->type())) return ActivationForm::kQuantized;
  }
  return ActivationForm::kFloat;
}

PackedActivations::PackedActivations(int64_t max_tokens, int64_t max_cols)
    : max_tokens_(max_tokens),
      max_cols_(max_cols),
      blocks_(Buffer::AllocateOrThrow(static_cast<size_t>(max_tokens) *
                                      static_cast<size_t>(max_cols / kActivationBlock) *
                                      sizeof(ActivationBlock))) {}

void PackedActivations::Set(const KernelTable& kernels, MatrixView<const float> x,
                            ActivationForm form, base::ThreadTeam& team) {
  QUIRE_CHECK_LE(x.rows, max_tokens_);
  QUIRE_CHECK_LE(x.cols, max_cols_);
  x_ = x;
  form_ = form;
  if (form == ActivationForm::kFloat) return;
  QUIRE_CHECK_EQ(x.cols % kActivationBlock, 0);
  const int64_t stride = x.cols / kActivationBlock;
  auto* blocks = reinterpret_cast<ActivationBlock*>(blocks_.data());
  team.ParallelFor(x.rows, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels.matmul->quantize_activations(x.row(t), x.cols, blocks + t * stride);
    }
  });
}

const ActivationBlock* PackedActivations::blocks() const {
  if (form_ == ActivationForm::kFloat) return nullptr;
  return reinterpret_cast<const ActivationBlock*>(blocks_.data());
}

void Matmul(const KernelTable& kernels, const PackedActivations& x, std::span<const MatmulJob> jobs,
            base::ThreadTeam& team) {
  if (x.tokens() == 0) return;
  int64_t panels = 0;
  size_t bytes = 0;
  for (const MatmulJob& job : jobs) {
    CheckJob(x, job);
    panels += job.weights->panels();
    bytes += job.weights->bytes();
  }
  if (panels == 0) return;
  const int64_t panel_bytes = std::max<int64_t>(1, static_cast<int64_t>(bytes) / panels);
  const int64_t grain = std::clamp<int64_t>(panels / (team.size() * kChunksPerThread), 1,
                                            std::max<int64_t>(1, kChunkBytes / panel_bytes));
  team.ParallelFor(panels, grain, [&](int64_t begin, int64_t end, int) {
    size_t job = 0;
    int64_t job_begin = 0;
    for (int64_t panel = begin; panel < end; ++panel) {
      while (panel - job_begin >= jobs[job].weights->panels()) {
        job_begin += jobs[job++].weights->panels();
      }
      RunPanel(kernels, x, jobs[job], panel - job_begin);
    }
  });
}

}  // namespace quire::kernels
