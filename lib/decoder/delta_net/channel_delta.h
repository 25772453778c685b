// Delta net with a decay per channel (Kimi Delta Attention), as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/recurrence/gated_norm.h"
#include "lib/decoder/recurrence/recurrent_mixer.h"

namespace heddle::decoder {

class ChannelDeltaMixer : public RecurrentMixer {
 public:
  ChannelDeltaMixer(const ChannelDelta& form, int64_t width, double init_std,
                    const at::TensorOptions& options);
  std::string_view kind() const override { return "channel_delta_net"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::mixer}; }

 protected:
  at::Tensor heads(const at::Tensor& x, const Batch& batch) override;
  Linear& last_projection() override { return o_proj_; }

 private:
  // Mixes whole rows for a range of the heads.
  at::Tensor mixed(const model::SequenceInputs& in, const model::HeadRange& range, const Batch& batch);
  void add_parameters(const at::TensorOptions& options);

  ChannelDelta form_;
  Linear q_proj_, k_proj_, v_proj_, f_a_proj_, f_b_proj_, b_proj_;
  Linear g_proj_;                     // g_proj, or g_a_proj of a low-rank gate
  std::unique_ptr<Linear> g_b_proj_;  // null: g_proj is the full gate
  Linear o_proj_;
  at::Tensor q_conv_, k_conv_, v_conv_, a_log_, dt_bias_;
  GatedNorm o_norm_;
  SequenceCore core_;
};

}  // namespace heddle::decoder
