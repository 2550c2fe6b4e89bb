// The vector kernels' tables, for VectorKernelsFor alone.
#pragma once

#include "kernels/vector_kernels.h"

namespace quire::kernels {

extern const VectorKernels kVectorScalar;
extern const VectorKernels kVectorAvx2;
extern const VectorKernels kVectorAvx512;
extern const VectorKernels kVectorNeon;

}  // namespace quire::kernels
