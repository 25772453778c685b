// The head: whole logits never exist if only the loss is needed and no seam uses them.
#include "head.h"

#include <utility>

namespace heddle::llama {

Head::Head(const ModelConfig& config, const at::TensorOptions& options)
    : norm_(config.hidden_size, config.rms_norm_eps, options),
      lm_head_(config.hidden_size, config.vocab_size, Linear::Bias::none,
               {Init::Kind::normal, config.initializer_range}, options) {
  add_child("model.norm", norm_);
  add_child("lm_head", lm_head_);
  add_child("loss", loss_);
}

at::Tensor Head::forward(at::Tensor x, const Batch& batch) {
  const at::Tensor hidden = norm_.call(std::move(x), batch);
  if (batch.labels.defined()) return loss_.of(hidden, lm_head_, batch);
  at::Tensor logits = lm_head_.call(hidden, batch);
  return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
}

}  // namespace heddle::llama
