// One pass over the output, without an addition into memory that others write.
#include "lib/nn/cpu/row_kernels.h"

#include <ATen/ops/empty.h>

#include "core/base/widest.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

// Some columns of one token. next: the rows of the token after it, whose columns are fetched.
template <class Number>
HEDDLE_INLINE void sum_columns(const Number* rows, const int64_t* row_of, const int64_t* next, int64_t k,
                               int64_t width, int64_t columns, Number* out) {
  Wide<Number> sum[kFloats] = {};
  for (int64_t j = 0; j < k; ++j) {
    if (next[j] >= 0) __builtin_prefetch(rows + next[j] * width);
    if (row_of[j] < 0) continue;
    const Number* const row = rows + row_of[j] * width;
    if (columns == kFloats)
      for (int64_t i = 0; i < kFloats; ++i) sum[i] += static_cast<Wide<Number>>(row[i]);
    else
      for (int64_t i = 0; i < columns; ++i) sum[i] += static_cast<Wide<Number>>(row[i]);
  }
  for (int64_t i = 0; i < columns; ++i) out[i] = static_cast<Number>(sum[i]);
}

// row_of and out are of the first token.
template <class Number>
HEDDLE_INLINE void sum_of_rows(const Number* rows, const int64_t* row_of, int64_t k, int64_t width,
                               int64_t tokens, Number* out) {
  for (int64_t token = 0; token < tokens; ++token, row_of += k, out += width) {
    const int64_t* const next = token + 1 < tokens ? row_of + k : row_of;
    int64_t at = 0;
    for (; at + kFloats <= width; at += kFloats)
      sum_columns(rows + at, row_of, next, k, width, kFloats, out + at);
    if (at < width) sum_columns(rows + at, row_of, next, k, width, width - at, out + at);
  }
}

}  // namespace

at::Tensor combine_rows_cpu(const at::Tensor& of_rows, const at::Tensor& row_of, int64_t tokens) {
  const int64_t width = of_rows.size(1), k = tokens == 0 ? 1 : row_of.numel() / tokens;
  at::Tensor out = at::empty({tokens, width}, of_rows.options());
  run_typed(of_rows.scalar_type(), [&]<class Number>(Number) {
    const Number* const rows = of_rows.const_data_ptr<Number>();
    const int64_t* const places = row_of.const_data_ptr<int64_t>();
    Number* const to = out.mutable_data_ptr<Number>();
    over_rows(tokens, width * k, [=](int64_t begin, int64_t end) {
      run_widest<sum_of_rows<Number>>(rows, places + begin * k, k, width, end - begin, to + begin * width);
    });
  });
  return out;
}

}  // namespace heddle::model
