// The head: whole logits never exist if only the loss is needed and no seam uses them.
#include "lib/decoder/head.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "lib/decoder/norm.h"

namespace heddle::decoder {

Head::Head(const Model& model, const at::TensorOptions& options)
    : multiplier_(model.logits_multiplier),
      norm_(make_norm(model.last_norm, model.width, options)),
      lm_head_(model.width, model.vocabulary, bias_if(model.head_bias), normal(model.init_std), options),
      loss_(model.logits_soft_cap) {
  add_child("model.norm", *norm_);
  add_child("lm_head", lm_head_);
  add_child("loss", loss_);
}

at::Tensor Head::forward(at::Tensor x, const Batch& batch) {
  at::Tensor hidden = norm_->call(std::move(x), batch);
  if (multiplier_ != 1) hidden = hidden * multiplier_;
  if (batch.labels.defined()) return loss_.of(hidden, lm_head_, batch);
  const at::Tensor logits = loss_.logits(hidden, lm_head_, batch);
  return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
}

}  // namespace heddle::decoder
