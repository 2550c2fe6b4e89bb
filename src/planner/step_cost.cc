#include "planner/step_cost.h"

namespace quire::planner {

sched::CostModel StepCost(const model::ModelConfig& config, DType weights,
                          const kvstore::KvLayout& layout, const MachineSpeed& machine) {
  const auto count = static_cast<double>(model::WeightsPerToken(config));
  const DTypeTraits& traits = Traits(weights);
  sched::CostModel cost;
  cost.weight_bytes = count * static_cast<double>(traits.block_bytes) / traits.block_elements;
  cost.flops_per_token = 2.0 * count;
  cost.kv_bytes_per_token = layout.bytes_per_token();
  cost.bandwidth_bytes_per_s = machine.bandwidth_bytes_per_s;
  cost.flops_per_s = machine.flops_per_s;
  return cost;
}

}  // namespace quire::planner
