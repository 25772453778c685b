// The gated delta net mixer, its state and its maker.
#include "lib/decoder/delta_net/delta_net.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "lib/decoder/delta_net/delta_rule.h"
#include "lib/decoder/norm.h"
#include "lib/decoder/recurrence/initial_values.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// Returns the logarithm of a number that is uniform in [0.01, 16), as transformers initializes it.
double log_of_uniform(const InitElement& element) {
  return std::log(0.01 + uniform_draw(element) * (16 - 0.01));
}

}  // namespace

DeltaNetMixer::DeltaNetMixer(const DeltaNet& form, int64_t width, double init_std,
                             const at::TensorOptions& options)
    : form_(form),
      q_proj_(width, form.key_heads * form.key, Linear::Bias::none, normal(init_std), options),
      k_proj_(width, form.key_heads * form.key, Linear::Bias::none, normal(init_std), options),
      v_proj_(width, form.value_heads * form.value, Linear::Bias::none, normal(init_std), options),
      z_proj_(width, form.value_heads * form.value, Linear::Bias::none, normal(init_std), options),
      b_proj_(width, form.value_heads, Linear::Bias::none, normal(init_std), options),
      a_proj_(width, form.value_heads, Linear::Bias::none, normal(init_std), options),
      out_proj_(form.value_heads * form.value, width, Linear::Bias::none, normal(init_std), options),
      norm_(form.value, {.eps = form.eps}, options),
      core_({form.key_heads, form.value_heads}) {
  add_child("in_proj_q", q_proj_);
  add_child("in_proj_k", k_proj_);
  add_child("in_proj_v", v_proj_);
  add_child("in_proj_z", z_proj_);
  add_child("in_proj_b", b_proj_);
  add_child("in_proj_a", a_proj_);
  add_child("norm", norm_);
  add_child("out_proj", out_proj_);
  add_child("core", core_);
  const at::TensorOptions wide =
      options.dtype(model::accumulation_dtype(c10::typeMetaToScalarType(options.dtype())));
  const int64_t keys = form.key_heads * form.key, values = form.value_heads * form.value;
  add_parameter("q_conv1d.weight", q_conv_, {keys, 1, form.taps}, Init::by(initial_tap), options);
  add_parameter("k_conv1d.weight", k_conv_, {keys, 1, form.taps}, Init::by(initial_tap), options);
  add_parameter("v_conv1d.weight", v_conv_, {values, 1, form.taps}, Init::by(initial_tap), options);
  add_parameter("A_log", a_log_, {form.value_heads}, Init::by(log_of_uniform), wide);
  add_parameter("dt_bias", dt_bias_, {form.value_heads}, {Init::Kind::ones, 0.0}, wide);
  for (ParameterSlot& slot : slots())
    if (slot.tensor->dim() == 1) slot.compute = wide.dtype().toScalarType();
}

ModuleTraits DeltaNetMixer::traits() const {
  return {
      .tokens = TokenUse::each_alone,
      .role = Role::mixer,
      .heads = {{"linear_num_key_heads", form_.key_heads}, {"linear_num_value_heads", form_.value_heads}}};
}

at::Tensor DeltaNetMixer::heads(const at::Tensor& x, const Batch& batch) {
  model::FewTensors in = model::call_each({&q_proj_, &k_proj_, &v_proj_, &z_proj_, &b_proj_, &a_proj_}, x,
                                          batch, model::Outputs::columns);
  const int64_t parts = form_.value_heads / a_log_.size(0);  // number of ranks that share the heads
  const model::HeadRange all{form_.key_heads / parts, form_.value_heads / form_.key_heads};
  const at::Tensor y = core_.compute({{in[2], in[5], in[4]}, {in[0], in[1]}}, all, batch,
                                     [&](const model::SequenceInputs& whole, const model::HeadRange& range) {
                                       return mixed(whole, all, range, batch);
                                     });
  return norm_.apply(y, in[3], batch);
}

at::Tensor DeltaNetMixer::mixed(const model::SequenceInputs& in, const model::HeadRange& heads,
                                const model::HeadRange& range, const Batch& batch) {
  const TokenRows tokens = rows_of(batch, "a gated delta net");
  const auto of_groups = [&](const at::Tensor& rows) { return model::rows_of_groups(rows, heads, range); };
  const auto of_heads = [&](const at::Tensor& rows) { return model::rows_of_heads(rows, heads, range); };
  const DeltaInputs inputs{convolved(0, in.of_groups[0], of_groups(q_conv_), tokens),
                           convolved(1, in.of_groups[1], of_groups(k_conv_), tokens),
                           convolved(2, in.of_heads[0], of_heads(v_conv_), tokens),
                           in.of_heads[1],
                           in.of_heads[2],
                           of_heads(a_log_),
                           of_heads(dt_bias_)};
  const DeltaHeads shape{range.groups, range.groups * range.heads, form_.key, form_.value};
  return delta_rule(inputs, shape, tokens, state_of_heads());
}

namespace {

class DeltaNetMaker : public MixerMaker {
 public:
  explicit DeltaNetMaker(const DeltaNet& form) : form_(form) {}
  std::string name() const override { return "linear_attn"; }
  std::unique_ptr<Mixer> make(int64_t width, double init_std,
                              const at::TensorOptions& options) const override {
    return std::make_unique<DeltaNetMixer>(form_, width, init_std, options);
  }
  // Four per element of the state: decay, read for a key, write, read for a query.
  double multiplications(int64_t width, int64_t) const override {
    const double keys = static_cast<double>(form_.key_heads * form_.key);
    const double values = static_cast<double>(form_.value_heads * form_.value);
    const double gates = static_cast<double>(form_.value_heads), of_width = static_cast<double>(width);
    return of_width * (2 * keys + 3 * values + 2 * gates) +
           static_cast<double>(form_.taps) * (2 * keys + values) +
           4 * values * static_cast<double>(form_.key);
  }
  TensorPlan tensor_plan() const override {
    return {{"in_proj_q", "colwise"}, {"in_proj_k", "colwise"}, {"in_proj_v", "colwise"},
            {"in_proj_z", "colwise"}, {"in_proj_b", "colwise"}, {"in_proj_a", "colwise"},
            {"out_proj", "rowwise"}};
  }

 private:
  DeltaNet form_;
};

}  // namespace

std::shared_ptr<const MixerMaker> delta_net(const DeltaNet& form) {
  if (form.key_heads < 1 || form.value_heads % form.key_heads != 0)
    throw Error(ErrorCode::config, "model",
                "a gated delta net has " + std::to_string(form.value_heads) + " value heads for " +
                    std::to_string(form.key_heads) + " key heads, which do not divide them",
                "set linear_num_value_heads to a multiple of linear_num_key_heads");
  return std::make_shared<DeltaNetMaker>(form);
}

}  // namespace heddle::decoder
