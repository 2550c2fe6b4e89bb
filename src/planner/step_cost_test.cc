#include "planner/step_cost.h"

#include <gtest/gtest.h>

#include "model/random_model.h"

namespace quire::planner {
namespace {

// From the published sizes of Llama 3.1: 8.03e9 parameters, of which 0.53e9 are the embedding.
TEST(StepCost, AnEightBillionModelReadsItsWeightsOnceAndItsKvPerToken) {
  const auto config = model::ConfigOfShape(*model::NamedShape("llama-3.1-8b"));
  ASSERT_TRUE(config.ok());
  const auto layout = kvstore::KvLayout::Create(
      model::KvGeometryOf(*config), {kernels::KvCodec::kF16, kernels::KvCodec::kF16, 32});
  ASSERT_TRUE(layout.ok());
  const sched::CostModel cost = StepCost(*config, DType::kQ8_0, *layout,
                                         {.bandwidth_bytes_per_s = 100e9, .flops_per_s = 1e12});
  EXPECT_NEAR(cost.weight_bytes, 7.50e9 * 34 / 32, 0.01e9);
  EXPECT_NEAR(cost.flops_per_token, 2 * 7.50e9, 0.01e9);
  EXPECT_EQ(cost.kv_bytes_per_token, 32 * 8 * 128 * 2 * 2);
  // One sequence of 1,000 tokens: weights and KV at 100 GB/s.
  EXPECT_NEAR(cost.StepSeconds(1, 1000), 0.0797 + 0.0013 + cost.step_overhead_s, 0.001);
}

}  // namespace
}  // namespace quire::planner
