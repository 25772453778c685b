// Products of float32 matrices on the CPU by packed blocks (Goto and van de Geijn 2008). For shapes that
// change from call to call: a call prepares nothing, and each thread keeps one pair of blocks.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/base/export.h"

namespace heddle::model {

// Element (i, j) is data[i * row + j * column]; one of the strides is 1.
struct MatrixView {
  const float* data;
  int64_t row, column;

  const float* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
  MatrixView transposed() const { return {data, column, row}; }
};

// c [rows, columns] = a [rows, depth] times b [depth, columns]; rows of c are c_row numbers apart. All sizes
// are at least 1.
struct PackedProduct {
  MatrixView a, b;
  float* c;
  int64_t c_row, rows, columns, depth;
};

using PackedProductKernel = void (*)(const PackedProduct& of);

// By the first of supported_packed_products(), in the calling thread.
HEDDLE_API void packed_product(const PackedProduct& of);

// Those that this processor runs, the widest registers first.
HEDDLE_API std::span<const PackedProductKernel> supported_packed_products();

}  // namespace heddle::model
