// The beginning of a decoder with learned positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/embedding.h"

namespace heddle::decoder {

// The sum of a token's row and its position's row. Children "embed_tokens" and "embed_positions". Takes
// tokens [batch, sequence], returns hidden states [tokens, width].
class PositionedEmbedding : public Module {
 public:
  PositionedEmbedding(std::unique_ptr<Embedding> tokens, const Model& model,
                      const at::TensorOptions& options);
  std::string_view kind() const override { return "positioned_embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  std::unique_ptr<Embedding> tokens_;
  Embedding positions_;
};

}  // namespace heddle::decoder
