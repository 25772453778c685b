// Products with the same bits on every processor: each number of the result is one sum in the order of its
// terms, whose products are not fused with it (-ffp-contract=off).
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/widest.h"
#include "heddle/nn/linear.h"
#include "heddle/train/replicated.h"
#include "lib/train/optimizer/norm.h"

namespace heddle::train {
namespace {

template <class Number>
struct LanesOf {
  typedef Number Type __attribute__((vector_size(64), aligned(sizeof(Number)), may_alias));
  static constexpr int64_t kCount = 64 / sizeof(Number);
};

// Contiguous a [rows, depth], a panel of b [depth, kCount] and the columns of c that it makes.
template <class Number>
struct PanelProduct {
  const Number *a, *panel;
  Number* c;
  int64_t rows, depth, columns, c_row;
};

template <class Number, int Rows>
HEDDLE_INLINE void multiply_panel_rows(const PanelProduct<Number>& of, int64_t row) {
  using Lanes = typename LanesOf<Number>::Type;
  constexpr int64_t kCount = LanesOf<Number>::kCount;
  const Number* const a = of.a + row * of.depth;
  Lanes sums[Rows] = {};
  for (int64_t k = 0; k < of.depth; ++k) {
    const Lanes b = *reinterpret_cast<const Lanes*>(of.panel + k * kCount);
    for (int r = 0; r < Rows; ++r) sums[r] += a[r * of.depth + k] * b;
  }
  for (int r = 0; r < Rows; ++r)
    std::memcpy(of.c + (row + r) * of.c_row, &sums[r], static_cast<size_t>(of.columns) * sizeof(Number));
}

template <class Number>
HEDDLE_INLINE void multiply_panel(const PanelProduct<Number>* of) {
  int64_t row = 0;
  for (; row + 4 <= of->rows; row += 4) multiply_panel_rows<Number, 4>(*of, row);
  for (; row < of->rows; ++row) multiply_panel_rows<Number, 1>(*of, row);
}

template <class Number>
void multiply_panels(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kCount = LanesOf<Number>::kCount;
  const int64_t columns = b.size(1), depth = b.size(0);
  const Number* const from = b.const_data_ptr<Number>();
  PanelProduct<Number> whole{
      a.const_data_ptr<Number>(), nullptr, c.mutable_data_ptr<Number>(), a.size(0), depth, kCount, columns};
  at::parallel_for(0, (columns + kCount - 1) / kCount, 1, [&](int64_t begin, int64_t end) {
    std::vector<Number> panel(static_cast<size_t>(depth * kCount));
    for (int64_t i = begin; i < end; ++i) {
      PanelProduct<Number> part = whole;
      part.columns = std::min(kCount, columns - i * kCount);
      for (int64_t k = 0; k < depth; ++k)
        std::memcpy(panel.data() + k * kCount, from + k * columns + i * kCount,
                    static_cast<size_t>(part.columns) * sizeof(Number));
      part.panel = panel.data();
      part.c += i * kCount;
      run_widest<multiply_panel<Number>>(&part);
    }
  });
}

}  // namespace

at::Tensor replicated_product(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu()) return model::matrix_product(a, b);
  const bool wide = a.scalar_type() == at::kDouble;
  const at::ScalarType dtype = wide ? at::kDouble : at::kFloat;
  const at::Tensor left = a.to(dtype).contiguous(), right = b.to(dtype).contiguous();
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, left.options());
  if (wide)
    multiply_panels<double>(out, left, right);
  else
    multiply_panels<float>(out, left, right);
  return out.to(a.scalar_type());
}

at::Tensor replicated_norm(const at::Tensor& tensor) {
  const at::Tensor squares = tensor.is_cpu() ? at::full({1}, sum_of_squares(tensor), at::kDouble)
                                             : sum_of_squares_on_device({tensor.detach()});
  return squares.sqrt_().to(tensor.scalar_type());
}

}  // namespace heddle::train
