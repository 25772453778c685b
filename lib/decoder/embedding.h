// The beginning of a decoder with learned positions, dropout, inputs of its layers or several streams.
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

// A token's row, with learned positions plus its position's row, of which numbers are dropped. Children
// "embed_tokens" and, where the model has them, "embed_norm", "embed_positions", "embed_dropout" and
// "layer_inputs". Takes tokens [batch, sequence], returns hidden states [tokens, width], with
// hyper-connections the same ones for each stream, and carries the inputs of the layers. Throws Error{input}
// for a position that has no row.
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
  std::unique_ptr<AllLayerInputs> layer_inputs_;  // null: layers have none
  at::Tensor given_;                              // of the layers, until they are given
};

}  // namespace heddle::decoder
