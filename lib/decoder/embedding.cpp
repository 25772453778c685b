// Two look-ups and their sum.
#include "lib/decoder/embedding.h"

#include <ATen/TensorOperators.h>

#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

PositionedEmbedding::PositionedEmbedding(std::unique_ptr<Embedding> tokens, const Model& model,
                                         const at::TensorOptions& options)
    : positions_count_(model.positions),
      tokens_(std::move(tokens)),
      positions_(model.positions, model.width, -1, normal(model.init_std), options) {
  add_child("embed_tokens", *tokens_);
  add_child("embed_positions", positions_);
}

at::Tensor PositionedEmbedding::forward(at::Tensor tokens, const Batch& batch) {
  const at::Tensor hidden = tokens_->call(tokens, batch), positions = positions_of(batch);
  check_positions(positions);
  return hidden + positions_.call(positions.expand_as(tokens), batch);
}

// The look-up would call a position a token. A device is not read.
void PositionedEmbedding::check_positions(const at::Tensor& positions) const {
  if (!positions.is_cpu() || positions.numel() == 0) return;
  const auto last = positions.max().item<int64_t>();
  if (last < positions_count_) return;
  throw Error(ErrorCode::input, "embedding",
              "position " + std::to_string(last) + " has no vector: the model has " +
                  std::to_string(positions_count_) + " positions",
              "give shorter sequences, or a model with more positions");
}

}  // namespace heddle::decoder
