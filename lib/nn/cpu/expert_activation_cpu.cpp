// One pass over the rows, compiled for AVX-512, AVX2 and what every x86-64 has.
#include "lib/nn/cpu/expert_activation_cpu.h"

#include <limits>

#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/experts/gated_rows.h"

namespace heddle::model {
namespace {

// Pointers to the first of `rows` rows; d_y is null in the forward.
template <class Number>
struct GatedRows {
  gated_loops::Rule<Wide<Number>> rule;
  gated_loops::Row<Number> first;
  const Wide<Number>* weights;
  Wide<Number>* d_weights;

  template <class Set, bool Backward>
  HEDDLE_INLINE void run(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      gated_loops::Row<Number> row = first;
      row.hidden += i * 2 * row.width;
      row.y += i * row.width;
      row.weight = weights[i];
      if constexpr (Backward) {
        row.d_hidden += i * 2 * row.width;
        row.d_y += i * row.width;
        d_weights[i] = gated_loops::compute_row<Set, true>(rule, row);
      } else {
        gated_loops::compute_row<Set, false>(rule, row);
      }
    }
  }
  template <class Set>
  HEDDLE_INLINE void run(int64_t begin, int64_t end) const {
    first.d_y == nullptr ? run<Set, false>(begin, end) : run<Set, true>(begin, end);
  }
};

template <class Number>
using GatedKernel = void (*)(const GatedRows<Number>& rows, int64_t begin, int64_t end);

#define HEDDLE_GATED_ROWS(Set, TARGET)                                                      \
  template <class Number>                                                                   \
  TARGET void gated_rows_##Set(const GatedRows<Number>& rows, int64_t begin, int64_t end) { \
    rows.template run<tile::Set>(begin, end);                                               \
  }

HEDDLE_GATED_ROWS(Sse2, )
HEDDLE_GATED_ROWS(Doubles, )
#ifdef HEDDLE_AVX512
HEDDLE_GATED_ROWS(Avx2, HEDDLE_AVX2)
HEDDLE_GATED_ROWS(Avx512, HEDDLE_AVX512)
#endif

template <class Number>
GatedKernel<Number> widest_gated_kernel() {
  if constexpr (std::is_same_v<Number, double>) return gated_rows_Doubles<double>;
#ifdef HEDDLE_AVX512
  if constexpr (!std::is_same_v<Number, double>) {
    if (cpu_capability() == CpuCapability::avx512) return gated_rows_Avx512<Number>;
    if (cpu_capability() == CpuCapability::avx2) return gated_rows_Avx2<Number>;
  }
#endif
  if constexpr (!std::is_same_v<Number, double>) return gated_rows_Sse2<Number>;
}

template <class W>
gated_loops::Rule<W> rule_of(const ExpertActivation& how) {
  if (how.kind == ExpertActivation::Kind::swiglu)
    return {1, std::numeric_limits<W>::infinity(), 0, how.interleaved};
  return {static_cast<W>(how.alpha), static_cast<W>(how.limit), static_cast<W>(how.shift), how.interleaved};
}

template <class Number>
GatedKernel<Number> gated_kernel() {
  static const GatedKernel<Number> kernel = widest_gated_kernel<Number>();
  return kernel;
}

template <class Number>
void over_gated_rows(const GatedRows<Number>& rows, int64_t count) {
  const GatedKernel<Number> kernel = gated_kernel<Number>();
  over_rows(count, 4 * rows.first.width, [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
}

}  // namespace

bool has_activation_kernel(const ExpertActivation& how, const at::Tensor& hidden) {
  using Kind = ExpertActivation::Kind;
  return (how.kind == Kind::swiglu || how.kind == Kind::clamped_swiglu) && has_kernel(hidden);
}

void activate_cpu(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights,
                  const at::Tensor& y) {
  run_typed(hidden.scalar_type(), [&]<class Number>(Number) {
    using W = Wide<Number>;
    over_gated_rows(GatedRows<Number>{rule_of<W>(how),
                                      {hidden.const_data_ptr<Number>(), nullptr, nullptr,
                                       y.mutable_data_ptr<Number>(), y.size(1), 0},
                                      weights.const_data_ptr<W>(),
                                      nullptr},
                    y.size(0));
  });
}

void activate_backward_cpu(const ExpertActivation& how, const at::Tensor& dy, const at::Tensor& hidden,
                           const at::Tensor& weights, const ActivationGradients& out) {
  if (dy.size(0) == 0) return;
  run_typed(hidden.scalar_type(), [&]<class Number>(Number) {
    using W = Wide<Number>;
    over_gated_rows(GatedRows<Number>{rule_of<W>(how),
                                      {hidden.const_data_ptr<Number>(), dy.const_data_ptr<Number>(),
                                       out.hidden.mutable_data_ptr<Number>(),
                                       out.y.mutable_data_ptr<Number>(), dy.size(1), 0},
                                      weights.const_data_ptr<W>(),
                                      out.weights.mutable_data_ptr<W>()},
                    dy.size(0));
  });
}

void activate_rows(const ExpertActivation& how, const ActivatedRows& rows, int64_t count, int64_t width) {
  gated_kernel<float>()({rule_of<float>(how),
                         {rows.hidden, rows.d_y, rows.d_hidden, rows.y, width, 0},
                         rows.weights,
                         rows.d_weights},
                        0, count);
}

}  // namespace heddle::model
