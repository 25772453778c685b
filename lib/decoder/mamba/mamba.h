// Mamba-2 as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/mamba/state_scan.h"

namespace heddle::decoder {

// What it knows of the tokens before: the inputs of the convolutions, and the state of each head.
class MambaState : public MixerState {
 public:
  void clear() override;

  at::Tensor x, b, c;  // [taps - 1, channels]; undefined: no token yet
  at::Tensor heads;    // [heads, state, width]
};

class MambaMixer : public Mixer {
 public:
  MambaMixer(const Mamba& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "mamba2"; }
  ModuleTraits traits() const override;
  std::unique_ptr<MixerState> keep_state() override;
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but out_proj
  // A convolution of x, b or c.
  struct Convolution {
    at::Tensor weight, bias;  // bias undefined: none
  };
  // last: the inputs of the tokens before, where a state is kept.
  static at::Tensor convolved(const at::Tensor& x, const Convolution& by, const TokenRows& tokens,
                              at::Tensor* last);
  void add_convolution(const std::string& name, Convolution& one, int64_t channels,
                       const at::TensorOptions& options);
  void add_parameter(const std::string& name, at::Tensor& tensor, at::IntArrayRef shape, const Init& init,
                     const at::TensorOptions& options);

  Mamba form_;
  Linear z_proj_, x_proj_, b_proj_, c_proj_, dt_proj_, out_proj_;
  Convolution x_conv_, b_conv_, c_conv_;
  at::Tensor a_log_, dt_bias_, direct_, norm_;
  MambaState* state_ = nullptr;  // null: each forward begins anew
};

}  // namespace heddle::decoder
