// Parts of experts as packed products, distributed over the intra-op threads.
#include "lib/nn/cpu/grouped_product_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

#include "lib/nn/cpu/packed_product_cpu.h"

namespace heddle::model {
namespace {

// Of a contiguous [..., rows, columns], from the row `first` on.
template <class Number>
MatrixView<Number> rows_from(const at::Tensor& tensor, int64_t first) {
  return {tensor.const_data_ptr<Number>() + first * tensor.size(-1), tensor.size(-1), 1};
}

// Calls body(expert, first, count) for parts of the items of all experts, [begins[e], begins[e + 1]) of each.
template <class Body>
void over_parts(std::span<const int64_t> begins, const Body& body) {
  const int64_t threads = at::get_num_threads(), all = begins.back();
  const int64_t largest = threads == 1 ? all : std::max<int64_t>(64, all / (4 * threads));
  std::vector<std::array<int64_t, 3>> parts;
  parts.reserve(begins.size() + static_cast<size_t>(4 * threads));
  for (size_t e = 0; e + 1 < begins.size(); ++e)
    for (int64_t at = begins[e]; at < begins[e + 1]; at += largest)
      parts.push_back({static_cast<int64_t>(e), at, std::min(largest, begins[e + 1] - at)});
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) body(parts[i][0], parts[i][1], parts[i][2]);
  });
}

template <class Number>
void multiply(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weights,
              std::span<const int64_t> begins, bool transposes) {
  auto* const to = out.mutable_data_ptr<Number>();
  const int64_t width = out.size(1);
  over_parts(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    const MatrixView<Number> matrix = rows_from<Number>(weights, expert * weights.size(1));
    packed_product(PackedProduct<Number>{rows_from<Number>(x, begin),
                                         transposes ? matrix.transposed() : matrix, to + begin * width, width,
                                         count, width, x.size(1)});
  });
}

template <class Number>
void multiply_transposed(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                         std::span<const int64_t> begins) {
  auto* const to = out.mutable_data_ptr<Number>();
  const int64_t rows = out.size(1), width = out.size(2);
  std::vector<int64_t> firsts;
  for (int64_t e = 0; e <= out.size(0); ++e) firsts.push_back(e * rows);
  over_parts(firsts, [&](int64_t expert, int64_t first, int64_t count) {
    const int64_t begin = begins[expert], depth = begins[expert + 1] - begin;
    if (depth == 0) {
      std::fill_n(to + first * width, count * width, Number(0));
      return;
    }
    MatrixView<Number> columns = rows_from<Number>(dy, begin).transposed();
    columns.data += first - expert * rows;
    packed_product(PackedProduct<Number>{columns, rows_from<Number>(x, begin), to + first * width, width,
                                         count, width, depth});
  });
}

}  // namespace

bool has_grouped_kernel(const at::Tensor& x, const at::Tensor& y) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.is_contiguous() && tensor.size(-1) > 0 &&
           (tensor.scalar_type() == at::kFloat ||
            (tensor.scalar_type() == at::kBFloat16 && has_packed_product_of_bfloat16()));
  };
  return fits(x) && fits(y) && x.scalar_type() == y.scalar_type();
}

void grouped_product_cpu(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weights,
                         std::span<const int64_t> begins, bool transposes) {
  if (x.scalar_type() == at::kFloat)
    multiply<float>(out, x, weights, begins, transposes);
  else
    multiply<c10::BFloat16>(out, x, weights, begins, transposes);
}

void grouped_weight_gradient_cpu(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                                 std::span<const int64_t> begins) {
  if (x.scalar_type() == at::kFloat)
    multiply_transposed<float>(out, dy, x, begins);
  else
    multiply_transposed<c10::BFloat16>(out, dy, x, begins);
}

}  // namespace heddle::model
