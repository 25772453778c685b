// The beginning of a decoder with learned positions or dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/dropout.h"
#include "heddle/nn/embedding.h"

namespace heddle::decoder {

// A token's row, with learned positions plus its position's row, of which numbers are dropped. Children
// "embed_tokens" and, where the model has them, "embed_positions" and "embed_dropout". Takes tokens [batch,
// sequence], returns hidden states [tokens, width]. Throws Error{input} for a position that has no row.
class InputEmbedding : public Module {
 public:
  InputEmbedding(std::unique_ptr<Embedding> tokens, const Model& model, const at::TensorOptions& options);
  std::string_view kind() const override { return "input_embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  void check_positions(const at::Tensor& positions) const;

  int64_t positions_count_;
  std::unique_ptr<Embedding> tokens_, positions_;
  std::unique_ptr<Dropout> dropout_;
};

}  // namespace heddle::decoder
