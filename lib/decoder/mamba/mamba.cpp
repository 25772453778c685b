// The Mamba-2 mixer, its state and its maker.
#include "lib/decoder/mamba/mamba.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/nn/activation.h"
#include "lib/decoder/mamba/group_norm.h"
#include "lib/decoder/mamba/state_scan.h"
#include "lib/decoder/norm.h"
#include "lib/decoder/recurrence/gated_norm.h"
#include "lib/decoder/recurrence/initial_values.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// Initial decay of head h: h + 1.
double log_of_place(const InitElement& element) {
  return std::log(1.0 + static_cast<double>(element.index[0]));
}

// Uniform in [-std, std).
double within(const InitElement& element) {
  return (2 * uniform_draw(element) - 1) * element.std;
}

double number(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

MambaMixer::MambaMixer(const Mamba& form, int64_t width, double init_std, const at::TensorOptions& options)
    : form_(form),
      z_proj_(width, form.heads * form.width, bias_if(form.bias), normal(init_std), options),
      x_proj_(width, form.heads * form.width, bias_if(form.bias), normal(init_std), options),
      b_proj_(width, form.groups * form.state, bias_if(form.bias), normal(init_std), options),
      c_proj_(width, form.groups * form.state, bias_if(form.bias), normal(init_std), options),
      dt_proj_(width, form.heads, bias_if(form.bias), normal(init_std), options),
      out_proj_(form.heads * form.width, width, bias_if(form.output_bias),
                normal(form.output_std > 0 ? form.output_std : init_std), options),
      core_({form.groups, form.heads}) {
  output_multiplier_ = form.output_multiplier;
  add_child("in_proj_z", z_proj_);
  add_child("in_proj_x", x_proj_);
  add_child("in_proj_b", b_proj_);
  add_child("in_proj_c", c_proj_);
  add_child("in_proj_dt", dt_proj_);
  add_child("out_proj", out_proj_);
  add_child("core", core_);
  add_own(options);
}

void MambaMixer::add_own(const at::TensorOptions& options) {
  add_convolution("x_conv1d", x_conv_, form_.heads * form_.width, options);
  add_convolution("b_conv1d", b_conv_, form_.groups * form_.state, options);
  add_convolution("c_conv1d", c_conv_, form_.groups * form_.state, options);
  const Init ones{Init::Kind::ones, 0.0};
  if (form_.gate != Mamba::Gate::without_norm)
    add_parameter("norm.weight", norm_, {form_.heads * form_.width}, ones, options);
  const at::TensorOptions wide =
      options.dtype(model::accumulation_dtype(c10::typeMetaToScalarType(options.dtype())));
  const size_t narrow = slots().size();
  add_parameter("A_log", a_log_, {form_.heads}, Init::by(log_of_place), wide);
  add_parameter("dt_bias", dt_bias_, {form_.heads}, form_.drawn_steps ? Init::by(initial_dt_bias) : ones,
                wide);
  add_parameter("D", direct_, {form_.heads}, ones, wide);
  for (size_t i = narrow; i < slots().size(); ++i) slots()[i].compute = wide.dtype().toScalarType();
}

void MambaMixer::add_convolution(const std::string& name, Convolution& convolution, int64_t channels,
                                 const at::TensorOptions& options) {
  const Init init = Init::by(within, 1 / std::sqrt(number(form_.taps)));
  add_parameter(name + ".weight", convolution.weight, {channels, 1, form_.taps}, init, options);
  if (form_.convolution_bias) add_parameter(name + ".bias", convolution.bias, {channels}, init, options);
}

ModuleTraits MambaMixer::traits() const {
  return {.tokens = TokenUse::each_alone,
          .role = Role::mixer,
          .heads = {{"mamba_num_heads", form_.heads}, {"n_groups", form_.groups}}};
}

at::Tensor MambaMixer::heads(const at::Tensor& x, const Batch& batch) {
  model::FewTensors in = model::call_each({&z_proj_, &x_proj_, &b_proj_, &c_proj_, &dt_proj_},
                                          times(x, form_.input_multiplier), batch, model::Outputs::columns);
  for (size_t i = 0; i < in.size(); ++i) in[i] = times(in[i], form_.part_multipliers[i]);
  const int64_t parts = form_.heads / a_log_.size(0);  // number of ranks that share the heads
  const model::HeadRange all{form_.groups / parts, form_.heads / form_.groups};
  const at::Tensor y = core_.compute({{in[1], in[4]}, {in[2], in[3]}}, all, batch,
                                     [&](const model::SequenceInputs& whole, const model::HeadRange& range) {
                                       return mixed(whole, all, range, batch);
                                     });
  return gated(y, in[0]);
}

at::Tensor MambaMixer::mixed(const model::SequenceInputs& in, const model::HeadRange& heads,
                             const model::HeadRange& range, const Batch& batch) {
  const TokenRows tokens = rows_of(batch, "Mamba-2");
  const auto of_groups = [&](const at::Tensor& rows) {
    return rows.defined() ? model::rows_of_groups(rows, heads, range) : rows;
  };
  const auto of_heads = [&](const at::Tensor& rows) {
    return rows.defined() ? model::rows_of_heads(rows, heads, range) : rows;
  };
  const ScanInputs inputs{
      convolved(0, in.of_heads[0], of_heads(x_conv_.weight), tokens, of_heads(x_conv_.bias)),
      convolved(1, in.of_groups[0], of_groups(b_conv_.weight), tokens, of_groups(b_conv_.bias)),
      convolved(2, in.of_groups[1], of_groups(c_conv_.weight), tokens, of_groups(c_conv_.bias)),
      in.of_heads[1],
      of_heads(a_log_),
      of_heads(dt_bias_),
      of_heads(direct_)};
  const ScanHeads shape{range.groups, range.groups * range.heads, form_.state,
                        form_.width,  form_.shortest_step,        form_.longest_step};
  return state_scan(inputs, shape, tokens, state_of_heads());
}

at::Tensor MambaMixer::gated(const at::Tensor& y, const at::Tensor& gate) const {
  const int64_t group = form_.heads * form_.width / form_.groups;
  switch (form_.gate) {
    case Mamba::Gate::before_norm:
      return gated_group_norm(y, gate, norm_, group, form_.eps);
    case Mamba::Gate::after_norm:
      return gated_norm(y, gate, norm_, {.eps = form_.eps, .group = group, .rounded = false});
    case Mamba::Gate::without_norm:
      return model::swiglu(gate, y);
  }
  return {};
}

namespace {

class MambaMaker : public MixerMaker {
 public:
  explicit MambaMaker(const Mamba& form) : form_(form) {}
  std::string name() const override { return "mamba"; }
  std::unique_ptr<Mixer> make(int64_t width, double init_std,
                              const at::TensorOptions& options) const override {
    return std::make_unique<MambaMixer>(form_, width, init_std, options);
  }
  // Three per element of the state: decay, write, read.
  double multiplications(int64_t width, int64_t) const override {
    const double inner = number(form_.heads * form_.width), shared = number(2 * form_.groups * form_.state);
    return number(width) * (3 * inner + shared + number(form_.heads)) +
           number(form_.taps) * (inner + shared) + 3 * inner * number(form_.state);
  }
  TensorPlan tensor_plan() const override {
    return {{"in_proj_z", "colwise"}, {"in_proj_x", "colwise"},  {"in_proj_b", "colwise"},
            {"in_proj_c", "colwise"}, {"in_proj_dt", "colwise"}, {"out_proj", "rowwise"}};
  }

 private:
  Mamba form_;
};

}  // namespace

std::shared_ptr<const MixerMaker> mamba(const Mamba& form) {
  if (form.groups < 1 || form.heads % form.groups != 0)
    throw Error(ErrorCode::config, "model",
                "Mamba-2 has " + std::to_string(form.heads) + " heads for " + std::to_string(form.groups) +
                    " groups, which do not divide them",
                "set mamba_num_heads to a multiple of n_groups");
  return std::make_shared<MambaMaker>(form);
}

}  // namespace heddle::decoder
