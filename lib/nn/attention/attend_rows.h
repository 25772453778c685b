// Reads and writes rows of one head for blocked attention, outside of its scratch, in the widest registers
// that the processor has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <type_traits>

#include "heddle/base/export.h"
#include "lib/nn/cpu/attend_tile_cpu.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model::pack {

inline int64_t padded(int64_t count, int64_t to = kPadding) {
  return (count + to - 1) / to * to;
}

// The columns of one head in a matrix with a row per token.
template <class Stored>
struct HeadColumns {
  Stored* data;
  int64_t row, width;  // from one row to the next; columns of the head
  HeadColumns from(int64_t first) const { return {data + first * row, row, width}; }
};

template <class Stored>
HeadColumns<const Stored> columns_of(const at::Tensor& x, int64_t head, int64_t width) {
  return {x.const_data_ptr<Stored>() + head * width, x.stride(0), width};
}
template <class Stored>
HeadColumns<Stored> mutable_columns_of(const at::Tensor& x, int64_t head, int64_t width) {
  return {x.mutable_data_ptr<Stored>() + head * width, x.stride(0), width};
}

// Packed matrices have rows of padded(width).
template <class Stored>
struct RowKernels {
  using Number = Wide<Stored>;

  // Packs the first rows times `scale`, each padded with zeros.
  void (*pack)(const HeadColumns<const Stored>& from, int64_t count, Number scale, Number* to);
  // The first rows times `scale` in blocks of kBlockKeys: [block, width, kBlockKeys]; rows of the last are
  // padded with zeros to a multiple of kPadding, and the rest is left as it is.
  void (*pack_by_column)(const HeadColumns<const Stored>& from, int64_t count, Number scale, Number* to);
  // sums[i]: of the products of row i of `a` and of `b`, whose rows are b_row apart.
  void (*dot)(const HeadColumns<const Stored>& a, int64_t count, const Number* b, int64_t b_row,
              Number* sums);
  // Writes, or adds to, the first rows: packed ones times factors[i * step].
  void (*write)(const Number* from, int64_t count, const Number* factors, int64_t step, bool add,
                const HeadColumns<Stored>& to);
};

// The widest that this processor runs, of float, double, c10::BFloat16 and c10::Half.
template <class Stored>
const RowKernels<Stored>& row_kernels();

// Returns the kernels that the processor runs, widest registers first; for float, c10::BFloat16 and
// c10::Half.
template <class Stored>
HEDDLE_API std::span<const RowKernels<Stored>* const> supported_row_kernels();

}  // namespace heddle::model::pack
