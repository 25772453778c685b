// Parts of experts as packed products, distributed over the intra-op threads.
#include "lib/nn/cpu/grouped_product_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "lib/nn/cpu/attend_tile_cpu.h"
#include "lib/nn/cpu/packed_product_cpu.h"

namespace heddle::model {
namespace {

// Views a contiguous [..., rows, columns] from the row `first` on.
template <class Number>
MatrixView<Number> rows_from(const at::Tensor& tensor, int64_t first) {
  return {tensor.const_data_ptr<Number>() + first * tensor.size(-1), tensor.size(-1), 1};
}

struct Part {
  int64_t expert, first, count;
  int64_t next;  // the expert of the part after it; -1: none
};

// Calls body(part, follows) for parts of the items of all experts, [begins[e], begins[e + 1]) of each.
// follows: the thread has computed the part before, and fetched this one's matrix.
template <class Body>
void over_parts(std::span<const int64_t> begins, const Body& body) {
  const int64_t threads = at::get_num_threads(), all = begins.back();
  const int64_t largest = threads == 1 ? all : std::max<int64_t>(64, all / (4 * threads));
  std::vector<Part> parts;
  parts.reserve(begins.size() + static_cast<size_t>(4 * threads));
  for (size_t e = 0; e + 1 < begins.size(); ++e)
    for (int64_t at = begins[e]; at < begins[e + 1]; at += largest)
      parts.push_back({static_cast<int64_t>(e), at, std::min(largest, begins[e + 1] - at), -1});
  for (size_t i = 1; i < parts.size(); ++i) parts[i - 1].next = parts[i].expert;
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) body(parts[i], i > from);
  });
}

template <class Number>
void multiply(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weights,
              std::span<const int64_t> begins, bool transposes) {
  auto* const to = out.mutable_data_ptr<Number>();
  const int64_t width = out.size(1);
  const auto matrix_of = [&](int64_t expert) {
    const MatrixView<Number> matrix = rows_from<Number>(weights, expert * weights.size(1));
    return transposes ? matrix.transposed() : matrix;
  };
  over_parts(begins, [&](const Part& part, bool follows) {
    PackedProduct<Number> product{rows_from<Number>(x, part.first),
                                  matrix_of(part.expert),
                                  to + part.first * width,
                                  width,
                                  part.count,
                                  width,
                                  x.size(1)};
    product.asked = follows;
    if (part.next >= 0 && part.next != part.expert)
      product.next[0] = {matrix_of(part.next).data, weights.size(1) * weights.size(2)};
    packed_product(product);
  });
}

template <class Number>
void multiply_transposed(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                         std::span<const int64_t> begins) {
  auto* const to = out.mutable_data_ptr<Number>();
  const int64_t rows = out.size(1), width = out.size(2);
  std::vector<int64_t> firsts;
  for (int64_t e = 0; e <= out.size(0); ++e) firsts.push_back(e * rows);
  over_parts(firsts, [&](const Part& part, bool) {
    const auto [expert, first, count, next] = part;
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

void matrix_product_cpu(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const auto view = [](const at::Tensor& of) {
    return MatrixView<float>{of.const_data_ptr<float>(), of.stride(0), of.stride(1)};
  };
  const PackedProduct<float> whole{
      view(a), view(b), out.mutable_data_ptr<float>(), out.stride(0), a.size(0), b.size(1), a.size(1), adds};
  const int64_t each = (whole.rows + at::get_num_threads() - 1) / at::get_num_threads();
  at::parallel_for(0, whole.rows, (each + kTileRows - 1) / kTileRows * kTileRows,
                   [&](int64_t from, int64_t to) {
                     PackedProduct<float> part = whole;
                     part.a.data = whole.a.at(from, 0);
                     part.c += from * whole.c_row;
                     part.rows = to - from;
                     packed_product(part);
                   });
}

}  // namespace heddle::model
