// The gated delta net as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/delta_net/delta_rule.h"
#include "lib/decoder/delta_net/gated_norm.h"

namespace heddle::decoder {

// What it knows of the tokens before: the inputs of the convolutions, and the state of each head.
class DeltaNetState : public MixerState {
 public:
  void clear() override;

  at::Tensor q, k, v;  // [taps - 1, channels]; undefined: no token yet
  at::Tensor heads;    // [value_heads, key, value]
};

class DeltaNetMixer : public Mixer {
 public:
  DeltaNetMixer(const DeltaNet& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_delta_net"; }
  ModuleTraits traits() const override;
  std::unique_ptr<MixerState> keep_state() override;
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but out_proj
  // last: the inputs of the tokens before, where a state is kept.
  static at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                              at::Tensor* last);
  void add_parameter(const char* name, at::Tensor& tensor, at::IntArrayRef shape, const Init& init,
                     const at::TensorOptions& options);

  DeltaNet form_;
  Linear q_proj_, k_proj_, v_proj_, z_proj_, b_proj_, a_proj_, out_proj_;
  at::Tensor q_conv_, k_conv_, v_conv_, a_log_, dt_bias_;
  GatedNorm norm_;
  DeltaNetState* state_ = nullptr;  // null: each forward begins anew
};

}  // namespace heddle::decoder
