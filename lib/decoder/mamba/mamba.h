// Mamba-2 as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/recurrence/recurrent_mixer.h"

namespace heddle::decoder {

class MambaMixer : public RecurrentMixer {
 public:
  MambaMixer(const Mamba& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "mamba2"; }
  ModuleTraits traits() const override;

 protected:
  at::Tensor heads(const at::Tensor& x, const Batch& batch) override;
  Linear& last_projection() override { return out_proj_; }

 private:
  // Convolution of x, b or c.
  struct Convolution {
    at::Tensor weight, bias;  // bias undefined: no bias
  };
  void add_own(const at::TensorOptions& options);
  // Mixes whole rows for a range of this rank's heads.
  at::Tensor mixed(const model::SequenceInputs& in, const model::HeadRange& heads,
                   const model::HeadRange& range, const Batch& batch);
  at::Tensor gated(const at::Tensor& y, const at::Tensor& gate) const;
  void add_convolution(const std::string& name, Convolution& convolution, int64_t channels,
                       const at::TensorOptions& options);

  Mamba form_;
  Linear z_proj_, x_proj_, b_proj_, c_proj_, dt_proj_, out_proj_;
  Convolution x_conv_, b_conv_, c_conv_;
  at::Tensor a_log_, dt_bias_, direct_, norm_;  // norm_ undefined: no norm
  SequenceCore core_;
};

}  // namespace heddle::decoder
