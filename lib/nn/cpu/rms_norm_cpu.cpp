// RMSNorm on the CPU in one pass over each row.
#include "lib/nn/cpu/row_kernels.h"

#include <array>
#include <cmath>

#include "core/base/widest.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
HEDDLE_INLINE void forward_rows(const Number* __restrict x, const Number* __restrict weight, double eps,
                                Number* __restrict y, Wide<Number>* __restrict root, int64_t rows,
                                int64_t width) {
  using W = Wide<Number>;
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const W squares =
        sum_of<W>(width, [x](int64_t i) { return static_cast<W>(x[i]) * static_cast<W>(x[i]); });
    const W r = W{1} / std::sqrt(squares / static_cast<W>(width) + static_cast<W>(eps));
    root[row] = r;
    for (int64_t i = 0; i < width; ++i) {
      const auto normal = static_cast<Number>(static_cast<W>(x[i]) * r);
      y[i] = static_cast<Number>(static_cast<W>(weight[i]) * static_cast<W>(normal));
    }
  }
}

// dx = root * (g - n * mean(g * n)), where n = x * root and g = dy * weight.
template <class Number>
HEDDLE_INLINE void backward_rows(const Number* __restrict dy, const Number* __restrict x,
                                 const Number* __restrict weight, const Wide<Number>* __restrict root,
                                 Number* __restrict dx, int64_t rows, int64_t width) {
  using W = Wide<Number>;
  for (int64_t row = 0; row < rows; ++row, dy += width, x += width, dx += width) {
    const W r = root[row];
    const W along =
        sum_of<W>(width,
                  [=](int64_t i) {
                    return static_cast<W>(dy[i]) * static_cast<W>(weight[i]) * static_cast<W>(x[i]);
                  }) *
        r * r / static_cast<W>(width);
    for (int64_t i = 0; i < width; ++i)
      dx[i] = static_cast<Number>(
          r * (static_cast<W>(dy[i]) * static_cast<W>(weight[i]) - static_cast<W>(x[i]) * along));
  }
}

// Columns [first, last) of the sum over rows of dy * x * root; rows of a block are summed in the wide type,
// the blocks in fp64.
template <class Number>
HEDDLE_INLINE void weight_columns(const Number* dy, const Number* x, const Wide<Number>* root, Number* dw,
                                  int64_t rows, int64_t width, int64_t first, int64_t last) {
  using W = Wide<Number>;
  constexpr int64_t kColumns = 64, kRows = 64;
  for (int64_t column = first; column < last; column += kColumns) {
    const int64_t columns = std::min(kColumns, last - column);
    std::array<double, kColumns> total{};
    for (int64_t block = 0; block < rows; block += kRows) {
      std::array<W, kColumns> part{};
      for (int64_t row = block; row < std::min(rows, block + kRows); ++row) {
        const Number* __restrict a = dy + row * width + column;
        const Number* __restrict b = x + row * width + column;
        const W r = root[row];
        for (int64_t i = 0; i < columns; ++i) part[i] += static_cast<W>(a[i]) * (static_cast<W>(b[i]) * r);
      }
      for (int64_t i = 0; i < columns; ++i) total[i] += part[i];
    }
    for (int64_t i = 0; i < columns; ++i) dw[column + i] = static_cast<Number>(static_cast<W>(total[i]));
  }
}

}  // namespace

void rms_norm_cpu(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                  const at::Tensor& root) {
  run_typed(x.scalar_type(), [&]<class Number>(Number) {
    const int64_t width = weight.numel(), rows = x.numel() / width;
    const auto *from = x.const_data_ptr<Number>(), *w = weight.const_data_ptr<Number>();
    auto* to = y.mutable_data_ptr<Number>();
    auto* roots = root.mutable_data_ptr<Wide<Number>>();
    over_rows(rows, width, [=](int64_t begin, int64_t end) {
      run_widest<forward_rows<Number>>(from + begin * width, w, eps, to + begin * width, roots + begin,
                                       end - begin, width);
    });
  });
}

void rms_norm_backward_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& root, const at::Tensor& dx, const at::Tensor& dw) {
  run_typed(x.scalar_type(), [&]<class Number>(Number) {
    const int64_t width = weight.numel(), rows = x.numel() / width;
    const auto *g = dy.const_data_ptr<Number>(), *from = x.const_data_ptr<Number>();
    const auto* w = weight.const_data_ptr<Number>();
    const auto* roots = root.const_data_ptr<Wide<Number>>();
    if (dx.defined()) {
      auto* to = dx.mutable_data_ptr<Number>();
      over_rows(rows, width, [=](int64_t begin, int64_t end) {
        run_widest<backward_rows<Number>>(g + begin * width, from + begin * width, w, roots + begin,
                                          to + begin * width, end - begin, width);
      });
    }
    if (dw.defined()) {
      auto* to = dw.mutable_data_ptr<Number>();
      over_rows(width, rows, [=](int64_t begin, int64_t end) {
        run_widest<weight_columns<Number>>(g, from, roots, to, rows, width, begin, end);
      });
    }
  });
}

}  // namespace heddle::model
