// Head of a decoder. Full logits are computed only if more than the loss is needed or a seam uses them.
#include "lib/decoder/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <utility>

#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

// Normalizes rows like torch.nn.functional.normalize.
at::Tensor rows_of_length_one(const at::Tensor& weight) {
  const at::Tensor norm = at::linalg_vector_norm(weight, 2, {1}, true);
  // Equal to norm.clamp_min(), whose backward LibTorch lacks on meta.
  return weight / (norm + (norm.clamp_min(1e-12) - norm).detach());
}

// Replaces a module's tensor for the lifetime of this object.
class Instead {
 public:
  Instead(at::Tensor& place, at::Tensor tensor)
      : place_(place), own_(std::exchange(place, std::move(tensor))) {}
  ~Instead() { place_ = std::move(own_); }
  Instead(const Instead&) = delete;
  Instead& operator=(const Instead&) = delete;

 private:
  at::Tensor& place_;
  at::Tensor own_;
};

}  // namespace

Head::Head(const Model& model, const at::TensorOptions& options)
    : multiplier_(model.logits_multiplier),
      normalised_(model.normalised_head),
      norm_(make_norm(model.last_norm, model.width, options)),
      lm_head_(model.width, model.vocabulary, bias_if(model.head_bias), normal(model.init_std), options),
      loss_(model.logits_soft_cap) {
  if (model.hyper_connections) {
    hc_head_ = std::make_unique<HyperConnection>(model, HyperConnection::Place::last, options);
    add_child("model.hc_head", *hc_head_);
  }
  if (model.block_residuals) {
    output_res_ = std::make_unique<BlockResidual>(model, /*trains=*/true, options);
    add_child("model.output_res", *output_res_);
  }
  add_child("model.norm", *norm_);
  add_child("lm_head", lm_head_);
  add_child("loss", loss_);
}

at::Tensor Head::forward(at::Tensor x, const Batch& batch) {
  if (hc_head_) x = hc_head_->collapsed(x, batch);
  if (output_res_) x = output_res_->of(x, std::exchange(blocks_, {}), batch);
  at::Tensor hidden = norm_->call(std::move(x), batch);
  if (multiplier_ != 1) hidden = hidden * multiplier_;
  if (!normalised_) return computed(hidden, batch);
  const Instead unit(lm_head_.weight, rows_of_length_one(lm_head_.weight));
  return computed(hidden, batch);
}

void Head::add_mtp(std::unique_ptr<MultiTokenPrediction> mtp) {
  mtp_ = std::move(mtp);
  add_child("mtp", *mtp_);
}

at::Tensor Head::computed(const at::Tensor& hidden, const Batch& batch) {
  const auto loss_of = [this](const at::Tensor& states, const Batch& of) {
    return loss_.of(states, lm_head_, of);
  };
  if (batch.labels.defined()) {
    const at::Tensor loss = loss_of(hidden, batch);
    return mtp_ && at::GradMode::is_enabled() ? loss + mtp_->loss(hidden, batch, loss_of) : loss;
  }
  const at::Tensor logits = loss_.logits(hidden, lm_head_, batch);
  return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
}

}  // namespace heddle::decoder
