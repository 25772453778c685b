// Products of matrices on the CPU by packed blocks (Goto and van de Geijn 2008), of float32 and of bfloat16.
// For shapes that change from call to call: a call prepares nothing, and each thread keeps one pair of
// blocks.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"

namespace heddle::model {

// Element (i, j) is data[i * row + j * column]; one of the strides is 1.
template <class Number>
struct MatrixView {
  const Number* data;
  int64_t row, column;

  const Number* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
  MatrixView transposed() const { return {data, column, row}; }
};

// Neighbouring numbers in memory.
template <class Number>
struct Stretch {
  const Number* data = nullptr;
  int64_t count = 0;
};

// c [rows, columns] = a [rows, depth] times b [depth, columns]; rows of c are c_row numbers apart. All sizes
// are at least 1. Of float32 alone: `adds` adds to c; `next` is what the thread reads next, such as the b of
// its next product, and is fetched while this one is computed, up to a block; `asked` says that b was such a
// `next`.
template <class Number>
struct PackedProduct {
  MatrixView<Number> a, b;
  Number* c;
  int64_t c_row, rows, columns, depth;
  bool adds = false, asked = false;
  Stretch<Number> next[2] = {};
};

template <class Number>
using PackedProductKernel = void (*)(const PackedProduct<Number>& product);

// Returns the float32 kernels that this processor runs, widest registers first.
HEDDLE_API std::span<const PackedProductKernel<float>> supported_packed_products();

// The first of them, in the calling thread.
HEDDLE_API void packed_product(const PackedProduct<float>& product);

// Sums of bfloat16 are in float32. Needs the processor's instruction for pairs (AVX512_BF16).
HEDDLE_API void packed_product(const PackedProduct<c10::BFloat16>& product);
HEDDLE_API bool has_packed_product_of_bfloat16();

}  // namespace heddle::model
