// Views: a pointer, extents and a row stride. They never own; whoever makes one keeps the bytes
// alive. Indexing is unchecked in release builds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace quire {

// [rows, cols] with `stride` elements from row to row (stride >= cols).
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in)
      : MatrixView(data_in, rows_in, cols_in, cols_in) {}
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in, int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}

  // A view of mutable values reads as a view of constant ones.
  operator MatrixView<const T>() const requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }

  T* row(int64_t r) const {
    QUIRE_DCHECK(r >= 0 && r < rows);
    return data + r * stride;
  }
  T& operator()(int64_t r, int64_t c) const { return row(r)[c]; }

  MatrixView row_range(int64_t begin, int64_t count) const {
    QUIRE_DCHECK(begin >= 0 && begin + count <= rows);
    return {data + begin * stride, count, cols, stride};
  }
  MatrixView col_range(int64_t begin, int64_t count) const {
    QUIRE_DCHECK(begin >= 0 && begin + count <= cols);
    return {data + begin, rows, count, stride};
  }
};

// A tensor as it lies in a file: rows of `cols` values in `type`, densely packed.
// One-dimensional tensors have rows = 1.
struct StoredTensor {
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;

  size_t row_bytes() const { return RowBytes(type, cols); }
  size_t bytes() const { return row_bytes() * static_cast<size_t>(rows); }
  const std::byte* row(int64_t r) const { return data + row_bytes() * static_cast<size_t>(r); }
};

}  // namespace quire
