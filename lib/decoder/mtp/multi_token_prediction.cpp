// Multi-token prediction: layers, shifted tokens and labels, and the sum of the losses.
#include "lib/decoder/mtp/multi_token_prediction.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ne.h>

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "lib/decoder/norm.h"
#include "lib/decoder/recurrence/document_marks.h"

namespace heddle::decoder {

MtpLayer::MtpLayer(const Layer& form, const Model& model, Parts parts, Place place,
                   const at::TensorOptions& options)
    : DecoderLayer(form, model.width, std::move(parts), options) {
  if (place.first) {
    of_embedding_ = make_norm(model.last_norm, model.width, options);
    of_hidden_ = make_norm(model.last_norm, model.width, options);
    product_ = std::make_unique<Linear>(2 * model.width, model.width, Linear::Bias::none,
                                        normal(model.init_std), options);
    add_child("enorm", *of_embedding_);
    add_child("hnorm", *of_hidden_);
    add_child("eh_proj", *product_);
  }
  if (!place.last) return;
  last_norm_ = make_norm(model.last_norm, model.width, options);
  add_child("final_layernorm", *last_norm_);
}

at::Tensor MtpLayer::entered(const at::Tensor& hidden, const at::Tensor& embedded, const Batch& batch) {
  const at::Tensor both =
      at::cat({of_embedding_->call(embedded, batch), of_hidden_->call(hidden, batch)}, -1);
  return product_->call(both, batch);
}

at::Tensor MtpLayer::forward(at::Tensor x, const Batch& batch) {
  at::Tensor y = DecoderLayer::forward(std::move(x), batch);
  return last_norm_ ? last_norm_->call(std::move(y), batch) : y;
}

MultiTokenPrediction::MultiTokenPrediction(const Model& model, MtpLayers layers,
                                           const at::TensorOptions& options)
    : form_(model.mtp),
      embedding_(model.vocabulary, model.width, model.padding, normal(model.init_std), options,
                 model.embedding_multiplier),
      layers_(std::move(layers)) {
  add_child("embed_tokens", embedding_);
  for (size_t i = 0; i < layers_.size(); ++i) add_child("layers." + std::to_string(i), *layers_[i]);
}

at::Tensor MultiTokenPrediction::head(int64_t place, at::Tensor hidden, const at::Tensor& tokens,
                                      const Batch& batch) {
  const size_t count = form_.layers.size(), first = form_.repeated ? 0 : static_cast<size_t>(place) * count;
  at::Tensor x = layers_[first]->entered(hidden, embedding_.call(tokens, batch), batch);
  for (size_t i = 0; i < count; ++i) x = layers_[first + i]->call(std::move(x), batch);
  return x;
}

at::Tensor MultiTokenPrediction::loss(at::Tensor hidden, const Batch& batch, const LossOf& loss_of) {
  at::Tensor sum;
  for (int64_t place = 0; place < form_.tokens; ++place) {
    hidden = head(place, std::move(hidden), later_tokens(batch.tokens, place + 1, 0), batch);
    Batch later = batch;
    later.labels = later_labels(batch, place + 1);
    const at::Tensor one = loss_of(hidden, later);
    sum = sum.defined() ? sum + one : one;
  }
  return sum * (form_.loss_factor / static_cast<double>(form_.tokens));
}

at::Tensor MultiTokenPrediction::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "multi-token prediction heads return a loss, but call() was used",
              "use loss()");
}

at::Tensor later_tokens(const at::Tensor& tokens, int64_t places, int64_t beyond) {
  const int64_t length = tokens.size(1), kept = std::max<int64_t>(0, length - places);
  return at::cat(
      {tokens.narrow(1, length - kept, kept), at::full_like(tokens.narrow(1, 0, length - kept), beyond)}, 1);
}

at::Tensor later_labels(const Batch& batch, int64_t places) {
  at::Tensor labels = later_tokens(batch.labels, places, Batch::kIgnore);
  if (!batch.documents.defined() || labels.is_meta()) return labels;
  const at::Tensor document =
      marks_of(batch.documents, labels.size(0), labels.size(1), labels.options()).document;
  return labels.masked_fill(at::ne(later_tokens(document, places, -1), document), Batch::kIgnore);
}

}  // namespace heddle::decoder
