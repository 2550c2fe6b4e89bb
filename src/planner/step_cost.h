// What a step costs a model on a machine, from shapes alone: for the simulator.
#pragma once

#include "kvstore/kv_layout.h"
#include "model/model_config.h"
#include "sched/simulator.h"
#include "tensor/dtype.h"

namespace quire::planner {

struct MachineSpeed {
  double bandwidth_bytes_per_s = 40e9;  // reading memory
  double flops_per_s = 400e9;           // multiplying matrices
};

// `weights` is the type of all matrices.
sched::CostModel StepCost(const model::ModelConfig& config, DType weights,
                          const kvstore::KvLayout& layout, const MachineSpeed& machine);

}  // namespace quire::planner
