// The beginning of a decoder with learned positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/embedding.h"

namespace heddle::decoder {

// The sum of a token's row and its position's row. Children "embed_tokens" and "embed_positions". Takes
// tokens [batch, sequence], returns hidden states [tokens, width]. Throws Error{input} for a position that
// has no row.
class PositionedEmbedding : public Module {
 public:
  PositionedEmbedding(std::unique_ptr<Embedding> tokens, const Model& model,
                      const at::TensorOptions& options);
  std::string_view kind() const override { return "positioned_embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  void check_positions(const at::Tensor& positions) const;

  int64_t positions_count_;
  std::unique_ptr<Embedding> tokens_;
  Embedding positions_;
};

}  // namespace heddle::decoder
