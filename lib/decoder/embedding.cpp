// Embedding look-ups, their sum, and dropout.
#include "lib/decoder/embedding.h"

#include <ATen/TensorOperators.h>

#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

InputEmbedding::InputEmbedding(std::unique_ptr<Embedding> tokens, const Model& model,
                               const at::TensorOptions& options)
    : positions_count_(model.positions),
      streams_(model.hyper_connections ? model.hyper_connections->streams : 1),
      tokens_(std::move(tokens)) {
  add_child("embed_tokens", *tokens_);
  if (model.embedding_norm) {
    norm_ = make_norm(*model.embedding_norm, model.width, options);
    add_child("embed_norm", *norm_);
  }
  if (model.positions > 0) {
    positions_ =
        std::make_unique<Embedding>(model.positions, model.width, -1, normal(model.init_std), options);
    add_child("embed_positions", *positions_);
  }
  if (model.layer_inputs.width > 0) {
    layer_inputs_ = std::make_unique<AllLayerInputs>(model, options);
    add_child("layer_inputs", *layer_inputs_);
  }
  if (model.embedding_dropout == 0) return;
  dropout_ = std::make_unique<Dropout>(model.embedding_dropout, "model.embed_dropout");
  add_child("embed_dropout", *dropout_);
}

at::Tensor InputEmbedding::forward(at::Tensor tokens, const Batch& batch) {
  at::Tensor hidden = tokens_->call(tokens, batch);
  if (norm_) hidden = norm_->call(std::move(hidden), batch);
  if (positions_) {
    const at::Tensor positions = positions_of(batch);
    check_positions(positions);
    hidden = hidden + positions_->call(positions.expand_as(tokens), batch);
  }
  if (dropout_) hidden = dropout_->call(std::move(hidden), batch);
  if (layer_inputs_) given_ = layer_inputs_->of(tokens, hidden, batch);
  return streams_ == 1 ? hidden : hidden.repeat({1, streams_});
}

Tensors InputEmbedding::give() {
  if (!layer_inputs_) return {};
  return {std::exchange(given_, {})};
}

// Checks positions, because the look-up would report an invalid position as a token. Skips devices, which
// would have to be read.
void InputEmbedding::check_positions(const at::Tensor& positions) const {
  if (!positions.is_cpu() || positions.numel() == 0) return;
  const auto last = positions.max().item<int64_t>();
  if (last < positions_count_) return;
  throw Error(ErrorCode::input, "embedding",
              "position " + std::to_string(last) + " has no embedding: the model has " +
                  std::to_string(positions_count_) + " positions",
              "use shorter sequences, or a model with more positions");
}

}  // namespace heddle::decoder
