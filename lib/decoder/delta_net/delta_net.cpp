// The mixer, its state and its maker.
#include "lib/decoder/delta_net/delta_net.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <string>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/norm.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// log of a number that is uniform in [0.01, 16), as transformers draws it.
double log_of_uniform(const InitElement& element) {
  const double uniform = 0.5 * std::erfc(-element.normal / std::sqrt(2.0));
  return std::log(0.01 + uniform * (16 - 0.01));
}

// Uniform between -1 and 1 over the root of the taps, as PyTorch begins a convolution of single channels.
double tap_of(const InitElement& element) {
  const double uniform = 0.5 * std::erfc(-element.normal / std::sqrt(2.0));
  return (2 * uniform - 1) / std::sqrt(static_cast<double>(element.shape.back()));
}

}  // namespace

void DeltaNetState::clear() {
  for (at::Tensor* one : {&q, &k, &v, &heads}) one->reset();
}

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
      norm_(form.value, form.eps, options) {
  add_child("in_proj_q", q_proj_);
  add_child("in_proj_k", k_proj_);
  add_child("in_proj_v", v_proj_);
  add_child("in_proj_z", z_proj_);
  add_child("in_proj_b", b_proj_);
  add_child("in_proj_a", a_proj_);
  add_child("norm", norm_);
  add_child("out_proj", out_proj_);
  const at::TensorOptions wide = options.dtype(model::wide_of(c10::typeMetaToScalarType(options.dtype())));
  const int64_t keys = form.key_heads * form.key, values = form.value_heads * form.value;
  add_parameter("q_conv1d.weight", q_conv_, {keys, 1, form.taps}, Init::by(tap_of), options);
  add_parameter("k_conv1d.weight", k_conv_, {keys, 1, form.taps}, Init::by(tap_of), options);
  add_parameter("v_conv1d.weight", v_conv_, {values, 1, form.taps}, Init::by(tap_of), options);
  add_parameter("A_log", a_log_, {form.value_heads}, Init::by(log_of_uniform), wide);
  add_parameter("dt_bias", dt_bias_, {form.value_heads}, {Init::Kind::ones, 0.0}, wide);
  for (ParameterSlot& slot : slots())
    if (slot.tensor->dim() == 1) slot.compute = wide.dtype().toScalarType();
}

void DeltaNetMixer::add_parameter(const char* name, at::Tensor& tensor, at::IntArrayRef shape,
                                  const Init& init, const at::TensorOptions& options) {
  tensor = model::make_parameter(shape, init, options);
  add_slot(name, tensor, init);
}

ModuleTraits DeltaNetMixer::traits() const {
  return {
      .tokens = TokenUse::mixes,
      .token_axes = {"tp"},
      .role = Role::mixer,
      .heads = {{"linear_num_key_heads", form_.key_heads}, {"linear_num_value_heads", form_.value_heads}}};
}

std::unique_ptr<MixerState> DeltaNetMixer::keep_state() {
  auto state = std::make_unique<DeltaNetState>();
  state_ = state.get();
  return state;
}

at::Tensor DeltaNetMixer::forward(at::Tensor x, const Batch& batch) {
  return out_proj_.call(heads(x, batch), batch);
}

at::Tensor DeltaNetMixer::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty()) return residual + call(std::move(x), batch);
  return out_proj_.call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

at::Tensor DeltaNetMixer::convolved(const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                                    at::Tensor* last) {
  if (last == nullptr) return short_convolution(x, weight, tokens);
  return continued_convolution(x, weight, *last);
}

at::Tensor DeltaNetMixer::heads(const at::Tensor& x, const Batch& batch) {
  const TokenRows tokens{batch.tokens.size(0), batch.tokens.size(1), batch.documents};
  if (state_ != nullptr && (tokens.rows != 1 || tokens.documents.defined()))
    throw Error(ErrorCode::internal, "generate", "a gated delta net keeps the state of one sequence",
                "give batches of one row without documents");
  const model::FewTensors in = model::call_each({&q_proj_, &k_proj_, &v_proj_, &z_proj_, &b_proj_, &a_proj_},
                                                x, batch, model::Outputs::columns);
  const auto of = [&](at::Tensor DeltaNetState::*last) { return state_ ? &(state_->*last) : nullptr; };
  const DeltaInputs inputs{convolved(in[0], q_conv_, tokens, of(&DeltaNetState::q)),
                           convolved(in[1], k_conv_, tokens, of(&DeltaNetState::k)),
                           convolved(in[2], v_conv_, tokens, of(&DeltaNetState::v)),
                           in[5],
                           in[4],
                           a_log_,
                           dt_bias_};
  const int64_t parts = form_.value_heads / a_log_.size(0);  // ranks that share the heads
  const DeltaHeads shape{form_.key_heads / parts, form_.value_heads / parts, form_.key, form_.value};
  const at::Tensor y = delta_rule(inputs, shape, tokens, of(&DeltaNetState::heads));
  return norm_.apply(y, in[3], batch);
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
  // Of the state four of each number: decay, what it holds for a key, what is written, what is read.
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
                "a gated delta net has " + std::to_string(form.value_heads) + " heads of values for " +
                    std::to_string(form.key_heads) + " of keys, which must divide them",
                "choose linear_num_value_heads as a multiple of linear_num_key_heads");
  return std::make_shared<DeltaNetMaker>(form);
}

}  // namespace heddle::decoder
