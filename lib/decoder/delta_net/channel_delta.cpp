// The channel delta mixer and its maker.
#include "lib/decoder/delta_net/channel_delta.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "lib/decoder/delta_net/delta_rule.h"
#include "lib/decoder/norm.h"
#include "lib/decoder/recurrence/initial_values.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// Returns the logarithm of a number that is uniform in [1, 16).
double log_of_rate(const InitElement& element) {
  return std::log(1 + uniform_draw(element) * 15);
}

}  // namespace

ChannelDeltaMixer::ChannelDeltaMixer(const ChannelDelta& form, int64_t width, double init_std,
                                     const at::TensorOptions& options)
    : form_(form),
      q_proj_(width, form.heads * form.width, Linear::Bias::none, normal(init_std), options),
      k_proj_(width, form.heads * form.width, Linear::Bias::none, normal(init_std), options),
      v_proj_(width, form.heads * form.width, Linear::Bias::none, normal(init_std), options),
      f_a_proj_(width, form.width, Linear::Bias::none, normal(init_std), options),
      f_b_proj_(form.width, form.heads * form.width, Linear::Bias::none, normal(init_std), options),
      b_proj_(width, form.heads, Linear::Bias::none, normal(init_std), options),
      g_proj_(width, form.whole_gate ? form.heads * form.width : form.width, Linear::Bias::none,
              normal(init_std), options),
      o_proj_(form.heads * form.width, width, Linear::Bias::none, normal(init_std), options),
      o_norm_(form.width, {.eps = form.eps, .sigmoid = true, .rounded = false}, options),
      core_({form.heads, form.heads, /*split=*/false}) {
  const std::pair<const char*, Linear*> layers[] = {{"q_proj", &q_proj_},
                                                    {"k_proj", &k_proj_},
                                                    {"v_proj", &v_proj_},
                                                    {"f_a_proj", &f_a_proj_},
                                                    {"f_b_proj", &f_b_proj_},
                                                    {"b_proj", &b_proj_},
                                                    {form.whole_gate ? "g_proj" : "g_a_proj", &g_proj_}};
  for (const auto& [name, layer] : layers) add_child(name, *layer);
  if (!form.whole_gate) {
    g_b_proj_ = std::make_unique<Linear>(form.width, form.heads * form.width, Linear::Bias::none,
                                         normal(init_std), options);
    add_child("g_b_proj", *g_b_proj_);
  }
  add_child("o_norm", o_norm_);
  add_child("o_proj", o_proj_);
  add_child("core", core_);
  add_parameters(options);
}

void ChannelDeltaMixer::add_parameters(const at::TensorOptions& options) {
  const at::TensorOptions wide =
      options.dtype(model::accumulation_dtype(c10::typeMetaToScalarType(options.dtype())));
  const int64_t channels = form_.heads * form_.width;
  add_parameter("q_conv1d.weight", q_conv_, {channels, 1, form_.taps}, Init::by(initial_tap), options);
  add_parameter("k_conv1d.weight", k_conv_, {channels, 1, form_.taps}, Init::by(initial_tap), options);
  add_parameter("v_conv1d.weight", v_conv_, {channels, 1, form_.taps}, Init::by(initial_tap), options);
  add_parameter("A_log", a_log_, {std::max(form_.rates, form_.heads)}, Init::by(log_of_rate), wide);
  const Init zeros{Init::Kind::zeros, 0.0};
  add_parameter("dt_bias", dt_bias_, {channels}, form_.lowest < 0 ? zeros : Init::by(initial_dt_bias), wide);
  for (ParameterSlot& slot : slots())
    if (slot.tensor->dim() == 1) slot.compute = wide.dtype().toScalarType();
}

at::Tensor ChannelDeltaMixer::heads(const at::Tensor& x, const Batch& batch) {
  const model::FewTensors in = model::call_each(
      {&q_proj_, &k_proj_, &v_proj_, &f_a_proj_, &b_proj_, &g_proj_}, x, batch, model::Outputs::columns);
  const at::Tensor y =
      core_.compute({{in[0], in[1], in[2], f_b_proj_.call(in[3], batch), in[4]}, {}}, {form_.heads, 1}, batch,
                    [&](const model::SequenceInputs& whole, const model::HeadRange& range) {
                      return mixed(whole, range, batch);
                    });
  return o_norm_.apply(y, g_b_proj_ ? g_b_proj_->call(in[5], batch) : in[5], batch);
}

at::Tensor ChannelDeltaMixer::mixed(const model::SequenceInputs& in, const model::HeadRange& range,
                                    const Batch& batch) {
  const TokenRows tokens = rows_of(batch, "a delta net");
  const auto own = [&](const at::Tensor& rows) {
    return model::rows_of_heads(rows, {form_.heads, 1}, range);
  };
  const DeltaInputs inputs{convolved(0, in.of_heads[0], own(q_conv_), tokens),
                           convolved(1, in.of_heads[1], own(k_conv_), tokens),
                           convolved(2, in.of_heads[2], own(v_conv_), tokens),
                           in.of_heads[3],
                           in.of_heads[4],
                           own(a_log_.narrow(0, 0, form_.heads)),
                           own(dt_bias_)};
  const DeltaHeads shape{range.groups, range.groups,      form_.width,
                         form_.width,  /*channels=*/true, form_.lowest};
  return delta_rule(inputs, shape, tokens, state_of_heads());
}

namespace {

class ChannelDeltaMaker : public MixerMaker {
 public:
  explicit ChannelDeltaMaker(const ChannelDelta& form) : form_(form) {}
  std::string name() const override { return "linear_attn"; }
  std::unique_ptr<Mixer> make(int64_t width, double init_std,
                              const at::TensorOptions& options) const override {
    return std::make_unique<ChannelDeltaMixer>(form_, width, init_std, options);
  }
  // Four per element of the state, as in a delta net with one decay per head.
  double multiplications(int64_t width, int64_t) const override {
    const auto of_width = static_cast<double>(width), head = static_cast<double>(form_.width);
    const double all = static_cast<double>(form_.heads) * head;
    const double gate = form_.whole_gate ? of_width * all : of_width * head + head * all;
    return of_width * (4 * all + head + static_cast<double>(form_.heads)) + head * all + gate +
           3 * static_cast<double>(form_.taps) * all + 4 * all * head;
  }

 private:
  ChannelDelta form_;
};

}  // namespace

std::shared_ptr<const MixerMaker> channel_delta(const ChannelDelta& form) {
  return std::make_shared<ChannelDeltaMaker>(form);
}

}  // namespace heddle::decoder
