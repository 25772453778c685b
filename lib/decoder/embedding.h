// Input embedding of a decoder with learned positions, dropout, per-layer inputs or several streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/dropout.h"
#include "heddle/nn/embedding.h"
#include "lib/decoder/carried/layer_input.h"

namespace heddle::decoder {

// Sum of the token's embedding and, with learned positions, the position's embedding, with dropout. Children
// "embed_tokens" and, if the model has them, "embed_norm", "embed_positions", "embed_dropout" and
// "layer_inputs". Takes tokens [batch, sequence] and returns hidden states [tokens, width], repeated for each
// stream of hyper-connections. Carries the per-layer inputs. Throws Error{input} for a position without
// embedding.
class InputEmbedding : public Module, public Carrier {
 public:
  InputEmbedding(std::unique_ptr<Embedding> tokens, const Model& model, const at::TensorOptions& options);
  std::string_view kind() const override { return "input_embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  void take(Tensors) override {}
  Tensors give() override;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  void check_positions(const at::Tensor& positions) const;

  int64_t positions_count_, streams_;
  std::unique_ptr<Embedding> tokens_, positions_;
  std::unique_ptr<Module> norm_;
  std::unique_ptr<Dropout> dropout_;
  std::unique_ptr<AllLayerInputs> layer_inputs_;  // null: no per-layer inputs
  at::Tensor given_;                              // per-layer inputs until give()
};

}  // namespace heddle::decoder
