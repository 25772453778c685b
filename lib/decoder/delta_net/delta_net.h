// Gated delta net as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/recurrence/gated_norm.h"
#include "lib/decoder/recurrence/recurrent_mixer.h"

namespace heddle::decoder {

class DeltaNetMixer : public RecurrentMixer {
 public:
  DeltaNetMixer(const DeltaNet& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_delta_net"; }
  ModuleTraits traits() const override;

 protected:
  at::Tensor heads(const at::Tensor& x, const Batch& batch) override;
  Linear& last_projection() override { return out_proj_; }

 private:
  // Mixes whole rows for a range of this rank's heads.
  at::Tensor mixed(const model::SequenceInputs& in, const model::HeadRange& heads,
                   const model::HeadRange& range, const Batch& batch);

  DeltaNet form_;
  Linear q_proj_, k_proj_, v_proj_, z_proj_, b_proj_, a_proj_, out_proj_;
  at::Tensor q_conv_, k_conv_, v_conv_, a_log_, dt_bias_;
  GatedNorm norm_;
  SequenceCore core_;
};

}  // namespace heddle::decoder
