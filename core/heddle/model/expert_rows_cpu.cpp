// One pass over the output, without an addition into memory that others write.
#include "heddle/model/expert_rows_cpu.h"

#include <ATen/ops/empty.h>

#include <vector>

#include "heddle/model/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
void sum_of_rows(const Number* __restrict rows, const int64_t* __restrict row_of, int64_t k, int64_t width,
                 Wide<Number>* __restrict sum, Number* __restrict out) {
  for (int64_t i = 0; i < width; ++i) sum[i] = 0;
  for (int64_t j = 0; j < k; ++j) {
    if (row_of[j] < 0) continue;
    const Number* __restrict row = rows + row_of[j] * width;
    for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<Wide<Number>>(row[i]);
  }
  for (int64_t i = 0; i < width; ++i) out[i] = static_cast<Number>(sum[i]);
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
      std::vector<Wide<Number>> sum(width);
      for (int64_t token = begin; token < end; ++token)
        sum_of_rows(rows, places + token * k, k, width, sum.data(), to + token * width);
    });
  });
  return out;
}

}  // namespace heddle::model
