// Two look-ups and their sum.
#include "lib/decoder/embedding.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "lib/decoder/norm.h"

namespace heddle::decoder {

PositionedEmbedding::PositionedEmbedding(std::unique_ptr<Embedding> tokens, const Model& model,
                                         const at::TensorOptions& options)
    : tokens_(std::move(tokens)),
      positions_(model.positions, model.width, -1, normal(model.init_std), options) {
  add_child("embed_tokens", *tokens_);
  add_child("embed_positions", positions_);
}

at::Tensor PositionedEmbedding::forward(at::Tensor tokens, const Batch& batch) {
  const at::Tensor hidden = tokens_->call(tokens, batch);
  return hidden + positions_.call(positions_of(batch).expand_as(tokens), batch);
}

}  // namespace heddle::decoder
