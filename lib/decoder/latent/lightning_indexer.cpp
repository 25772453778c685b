// Lightning indexer: projections, a norm of the keys, a rotation, then the choice.
#include "lib/decoder/latent/lightning_indexer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "lib/decoder/latent/choose_keys.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

// Cached keys of one sequence.
class LightningIndexer::KeptKeys final : public MixerState {
 public:
  void clear() override { keys_.reset(); }
  // Appends new keys and returns the keys of all tokens.
  at::Tensor with(const at::Tensor& more) {
    keys_ = keys_.defined() ? at::cat({keys_, more}) : more;
    return keys_;
  }

 private:
  at::Tensor keys_;
};

LightningIndexer::LightningIndexer(const Latent& form, int64_t width, double init_std,
                                   const at::TensorOptions& options)
    : form_(*form.indexer) {
  const Init ones{Init::Kind::ones, 0.0}, zeros{Init::Kind::zeros, 0.0};
  const int64_t dim = form_.head_dim;
  add("wq_b.weight", wq_b_, {form_.heads * dim, form.query_rank}, normal(init_std), options);
  add("wk.weight", wk_, {dim, width}, normal(init_std), options);
  add("k_norm.weight", k_norm_weight_, {dim}, ones, options);
  add("k_norm.bias", k_norm_bias_, {dim}, zeros, options);
  add("weights_proj.weight", weights_proj_, {form_.heads, width}, normal(init_std), options);
  add_child("core", core_);
}

void LightningIndexer::add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
                           const at::TensorOptions& options) {
  slot = model::make_parameter(sizes, init, options);
  slot.set_requires_grad(false);
  add_slot(name, slot, init);
}

at::Tensor LightningIndexer::choose(const at::Tensor& x, const at::Tensor& of_queries,
                                    const model::RotaryAngles& angles, const Batch& batch) {
  const int64_t sequence = whole_sequence_of(batch);
  if (kept_ == nullptr && sequence <= form_.top_k) return {};
  const at::NoGradGuard no_gradients;
  model::RotaryAngles first = angles;
  first.part = {form_.head_dim, 0, form_.interleaved};
  const at::Tensor normal =
      model::layer_norm(model::linear(x, wk_, {}), k_norm_weight_, k_norm_bias_, form_.eps);
  KeyScores scores{{}, model::rotate(normal, first), {}};
  model::GatheredRows keys;
  if (kept_ != nullptr)
    scores.k = kept_->with(scores.k);
  else
    keys = core_.gather(std::move(scores.k), batch), scores.k = keys.values;
  if (scores.k.size(0) <= form_.top_k) return {};
  scores.q = model::rotate(model::linear(of_queries, wq_b_, {}), first);
  scores.weights = model::linear(x, weights_proj_, {});
  const model::BelowAutograd below;
  if (kept_ != nullptr && scores.k.size(0) > x.size(0)) return choose_keys_of_last(scores, form_.top_k);
  return choose_keys(scores, batch.tokens.size(0), sequence, batch.documents, form_.top_k, keys.places);
}

std::unique_ptr<MixerState> LightningIndexer::keep_state() {
  auto kept = std::make_unique<KeptKeys>();
  kept_ = kept.get();
  return kept;
}

at::Tensor LightningIndexer::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a lightning indexer takes two tensors, but call() was used",
              "use choose()");
}

}  // namespace heddle::decoder
