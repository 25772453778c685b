// End of a decoder: the last norm, the head, and the loss if there are labels.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "heddle/decoder/description.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "lib/decoder/blocks/block_residual.h"
#include "lib/decoder/mtp/multi_token_prediction.h"
#include "lib/decoder/streams/hyper_module.h"

namespace heddle::decoder {

// Children "model.norm", "lm_head", "loss" and, if the model has them, "mtp" (multi-token prediction heads),
// "model.hc_head" (hyper-connections) and "model.output_res" (block residuals). Takes hidden states [tokens,
// width], or those of all streams. With labels, returns the sum of the token losses, fp32 [1], in training
// plus those of the multi-token prediction heads; without labels, logits [batch, sequence, vocabulary].
class Head : public Module, public Carrier {
 public:
  Head(const Model& model, const at::TensorOptions& options);
  std::string_view kind() const override { return "head"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::head}; }
  // Makes the head use another module's tensor: tied embeddings.
  void share(const at::Tensor& weight) { lm_head_.weight = weight; }
  void add_mtp(std::unique_ptr<MultiTokenPrediction> mtp);
  void take(Tensors carried) override { blocks_ = std::move(carried); }
  Tensors give() override { return {}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor computed(const at::Tensor& hidden, const Batch& batch);

  double multiplier_;
  bool normalised_;
  std::unique_ptr<HyperConnection> hc_head_;   // null: one stream
  std::unique_ptr<BlockResidual> output_res_;  // null: no block residuals
  Tensors blocks_;
  std::unique_ptr<Module> norm_;
  Linear lm_head_;
  TokenLoss loss_;
  std::unique_ptr<MultiTokenPrediction> mtp_;  // null: no multi-token prediction heads
};

}  // namespace heddle::decoder
