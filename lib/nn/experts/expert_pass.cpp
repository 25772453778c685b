// Products ask for the next product's matrix while they compute, so that memory is read behind them.
#include "lib/nn/experts/expert_pass.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "heddle/nn/linear.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/cpu/expert_activation_cpu.h"
#include "lib/nn/cpu/grouped_product_cpu.h"
#include "lib/nn/cpu/packed_product_cpu.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

using View = MatrixView<float>;

using Next = Stretch<float>;

// c [rows, columns] = a b; b was `next` or `then` of the product before, or was just written.
void multiply_views(const View& a, const View& b, float* c, int64_t rows, int64_t columns, int64_t depth,
                    const Next& next = {}, const Next& then = {}) {
  packed_product(PackedProduct<float>{a, b, c, columns, rows, columns, depth, false, true, {next, then}});
}

View rows_of_width(const float* data, int64_t width) {
  return {data, width, 1};
}

// One after the other in one allocation.
class ScratchRows {
 public:
  ScratchRows(int64_t rows, int64_t numbers_a_row, const at::TensorOptions& options)
      : rows_(rows),
        all_(at::empty({rows * numbers_a_row}, options)),
        next_(all_.numel() == 0 ? nullptr : all_.mutable_data_ptr<float>()) {}
  float* of(int64_t width) {
    float* const own = next_;
    next_ += rows_ * width;
    return own;
  }

 private:
  int64_t rows_;
  at::Tensor all_;
  float* next_;
};

int64_t most_rows(const ExpertRows& rows) {
  int64_t most = 0;
  for (size_t e = 0; e + 1 < rows.begins.size(); ++e) most = std::max(most, rows.of(static_cast<int64_t>(e)));
  return most;
}

// The sizes and the data of a pass.
struct PassData {
  const ExpertRows& rows;
  const int64_t* tokens;
  int64_t experts, hidden, width, columns;
  const float *x, *gate_up, *down, *shares;

  explicit PassData(const ExpertPass& of)
      : rows(of.rows),
        tokens(of.rows.tokens.const_data_ptr<int64_t>()),
        experts(of.down.size(0)),
        hidden(of.down.size(1)),
        width(of.down.size(2)),
        columns(2 * width),
        x(of.x.const_data_ptr<float>()),
        gate_up(of.gate_up.const_data_ptr<float>()),
        down(of.down.const_data_ptr<float>()),
        shares(of.shares.const_data_ptr<float>()) {}

  // The first expert with rows from e on; `experts`: none.
  int64_t with_rows(int64_t e) const {
    while (e < experts && rows.of(e) == 0) ++e;
    return e;
  }
  const float* gate_up_of(int64_t e) const { return gate_up + e * columns * hidden; }
  const float* down_of(int64_t e) const { return down + e * hidden * width; }
  Next next_gate_up(int64_t e) const { return e < experts ? Next{gate_up_of(e), columns * hidden} : Next{}; }
  Next next_down(int64_t e) const { return e < experts ? Next{down_of(e), hidden * width} : Next{}; }
  // The rows of expert e out of those of all tokens, [.., hidden].
  void gather(const float* from, int64_t e, float* to) const {
    const int64_t* const last = tokens + rows.begins[e + 1] - 1;
    for (const int64_t* token = tokens + rows.begins[e]; token <= last; ++token, to += hidden) {
      const float* const next = from + token[token < last ? 1 : 0] * hidden;
      for (int64_t i = 0; i < hidden; i += 16) __builtin_prefetch(next + i);
      std::memcpy(to, from + *token * hidden, static_cast<size_t>(hidden) * sizeof(float));
    }
  }
};

// Inputs, outputs and scratch that only the backward has.
struct BackwardData {
  const float *hidden, *dy;
  float *rows, *shares, *gate_up, *down;
  float *taken, *d_activated, *d_hidden, *activated;
};

void differentiate_expert(const PassData& of, const ExpertActivation& how, const BackwardData& data,
                          int64_t e) {
  const int64_t begin = of.rows.begins[e], count = of.rows.of(e);
  of.gather(data.dy, e, data.taken);
  const View taken = rows_of_width(data.taken, of.hidden),
             d_hidden = rows_of_width(data.d_hidden, of.columns);
  multiply_views(taken, rows_of_width(of.down_of(e), of.width), data.d_activated, count, of.width, of.hidden,
                 {data.hidden + begin * of.columns, count * of.columns}, of.next_gate_up(e));
  activate_rows(how,
                {data.hidden + begin * of.columns, of.shares + begin, data.activated, data.d_activated,
                 data.d_hidden, data.shares + begin},
                count, of.width);
  multiply_views(d_hidden, rows_of_width(of.gate_up_of(e), of.hidden), data.rows + begin * of.hidden, count,
                 of.hidden, of.columns, of.next_down(of.with_rows(e + 1)));
  multiply_views(taken.transposed(), rows_of_width(data.activated, of.width),
                 data.down + e * of.hidden * of.width, of.hidden, of.width, count);
  of.gather(of.x, e, data.taken);
  multiply_views(d_hidden.transposed(), taken, data.gate_up + e * of.columns * of.hidden, of.columns,
                 of.hidden, count);
}

// Records the products and the memory of a pass on meta.
class MetaPass {
 public:
  MetaPass(const ExpertPass& pass, int64_t numbers_a_row)
      : pass_(pass), scratch_(at::empty({most_rows(pass.rows) * numbers_a_row}, pass.x.options())) {}

  void forward(int64_t e, const at::Tensor& hidden, const at::Tensor& out) const {
    const int64_t width = pass_.down.size(2);
    const at::Tensor own = of(e, hidden), activated = scratch(e, width);
    matrix_product_into(own, taken(e), matrix(pass_.gate_up, e).t());
    recorded_kernels().expert_activation(pass_.activation, own, of(e, pass_.shares), activated);
    matrix_product_into(of(e, out), activated, matrix(pass_.down, e).t());
  }

  void backward(int64_t e, const at::Tensor& hidden, const PassGradients& out) const {
    const int64_t width = pass_.down.size(2);
    const at::Tensor d_activated = scratch(e, width), activated = scratch(e, width),
                     d_hidden = scratch(e, 2 * width), d_taken = taken(e);
    matrix_product_into(d_activated, d_taken, matrix(pass_.down, e));
    recorded_kernels().expert_activation_backward(pass_.activation, d_activated, of(e, hidden),
                                                  of(e, pass_.shares), d_hidden, of(e, out.shares),
                                                  activated);
    matrix_product_into(of(e, out.rows), d_hidden, matrix(pass_.gate_up, e));
    matrix_product_into(matrix(out.down, e), d_taken.t(), activated);
    matrix_product_into(matrix(out.gate_up, e), d_hidden.t(), taken(e));
  }

 private:
  static at::Tensor matrix(const at::Tensor& experts, int64_t e) {
    return experts.select(0, e).view({-1, experts.size(-1)});
  }
  at::Tensor of(int64_t e, const at::Tensor& rows) const {
    return rows.narrow(0, pass_.rows.begins[e], pass_.rows.of(e));
  }
  at::Tensor scratch(int64_t e, int64_t width) const {
    return scratch_.narrow(0, 0, pass_.rows.of(e) * width).view({pass_.rows.of(e), width});
  }
  at::Tensor taken(int64_t e) const {
    const at::Tensor out = scratch(e, pass_.down.size(1));
    const auto bytes = static_cast<double>(out.numel() * out.element_size());
    record_operator("heddle::take_rows", {static_cast<double>(out.numel()), bytes, bytes});
    return out;
  }

  const ExpertPass& pass_;
  at::Tensor scratch_;
};

}  // namespace

bool has_one_thread(const at::Tensor& x) {
  return x.is_meta() || at::get_num_threads() == 1;
}

bool has_expert_pass(const ExpertActivation& activation, const at::Tensor& x,
                     const ExpertParameters& parameters) {
  using Kind = ExpertActivation::Kind;
  const bool has_sigmoid = activation.kind == Kind::swiglu || activation.kind == Kind::clamped_swiglu;
  const auto fits = [](const at::Tensor& tensor) {
    return computes_on_cpu(tensor) && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
           tensor.size(-1) > 0;
  };
  return fits(x) && fits(parameters.gate_up) && fits(parameters.down) && parameters.down.size(1) > 0 &&
         !parameters.gate_up_bias.defined() && !parameters.down_bias.defined() &&
         !parameters.adapters.down_a.defined() && parameters.products == nullptr &&
         (x.is_meta() ? has_sigmoid : has_activation_kernel(activation, x)) && has_one_thread(x);
}

at::Tensor pass_forward(const ExpertPass& pass, const at::Tensor& hidden) {
  const at::Tensor out = at::empty({pass.rows.count(), pass.down.size(1)}, pass.x.options());
  if (out.is_meta()) {
    const MetaPass recorded(pass, pass.down.size(1) + pass.down.size(2));
    for (int64_t e = 0; e < pass.down.size(0); ++e)
      if (pass.rows.of(e) > 0) recorded.forward(e, hidden, out);
    return out;
  }
  const PassData of(pass);
  ScratchRows scratch(most_rows(of.rows), of.hidden + of.width, pass.x.options());
  float *const taken = scratch.of(of.hidden), *const activated = scratch.of(of.width);
  float *const to = out.mutable_data_ptr<float>(), *const first = hidden.mutable_data_ptr<float>();
  for (int64_t e = of.with_rows(0); e < of.experts; e = of.with_rows(e + 1)) {
    const int64_t begin = of.rows.begins[e], count = of.rows.of(e);
    float* const own = first + begin * of.columns;
    of.gather(of.x, e, taken);
    multiply_views(rows_of_width(taken, of.hidden), rows_of_width(of.gate_up_of(e), of.hidden).transposed(),
                   own, count, of.columns, of.hidden, of.next_down(e));
    activate_rows(pass.activation, {own, of.shares + begin, activated}, count, of.width);
    multiply_views(rows_of_width(activated, of.width), rows_of_width(of.down_of(e), of.width).transposed(),
                   to + begin * of.hidden, count, of.hidden, of.width, of.next_gate_up(of.with_rows(e + 1)));
  }
  return out;
}

PassGradients pass_backward(const ExpertPass& pass, const at::Tensor& hidden, const at::Tensor& dy) {
  const at::TensorOptions options = dy.options();
  const PassGradients out{at::empty({pass.rows.count(), pass.down.size(1)}, options),
                          at::empty({pass.rows.count()}, options), at::empty(pass.gate_up.sizes(), options),
                          at::empty(pass.down.sizes(), options)};
  if (dy.is_meta()) {
    const MetaPass recorded(pass, pass.down.size(1) + 4 * pass.down.size(2));
    for (int64_t e = 0; e < pass.down.size(0); ++e)
      if (pass.rows.of(e) > 0) recorded.backward(e, hidden, out);
    return out;
  }
  const PassData of(pass);
  ScratchRows scratch(most_rows(of.rows), of.hidden + 2 * of.width + of.columns, options);
  BackwardData data{hidden.const_data_ptr<float>(),
                    dy.const_data_ptr<float>(),
                    out.rows.mutable_data_ptr<float>(),
                    out.shares.mutable_data_ptr<float>(),
                    out.gate_up.mutable_data_ptr<float>(),
                    out.down.mutable_data_ptr<float>(),
                    scratch.of(of.hidden),
                    scratch.of(of.width),
                    scratch.of(of.columns),
                    scratch.of(of.width)};
  for (int64_t e = 0; e < of.experts; ++e) {
    if (of.rows.of(e) > 0) {
      differentiate_expert(of, pass.activation, data, e);
    } else {
      std::fill_n(data.gate_up + e * of.columns * of.hidden, of.columns * of.hidden, 0.0f);
      std::fill_n(data.down + e * of.hidden * of.width, of.hidden * of.width, 0.0f);
    }
  }
  return out;
}

}  // namespace heddle::model
