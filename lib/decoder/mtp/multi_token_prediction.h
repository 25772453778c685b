// Heads that predict tokens after the next one: layers behind the model's last norm, with a loss of their
// own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/layer.h"

namespace heddle::decoder {

// A layer with what a head has besides: at its beginning a norm of the embedding, one of the hidden states
// and their product, at its end a norm.
class MtpLayer : public DecoderLayer {
 public:
  struct Place {
    bool first = false, last = false;  // of a head
  };
  MtpLayer(const Layer& form, const Model& model, Parts parts, Place place, const at::TensorOptions& options);
  std::string_view kind() const override { return "mtp_layer"; }
  // Of the first: hidden and embedded [tokens, width].
  at::Tensor entered(const at::Tensor& hidden, const at::Tensor& embedded, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  std::unique_ptr<Module> of_embedding_, of_hidden_, last_norm_;
  std::unique_ptr<Linear> product_;
};

using MtpLayers = std::vector<std::unique_ptr<MtpLayer>>;

// Children "embed_tokens" and "layers.N".
class MultiTokenPrediction : public Module {
 public:
  MultiTokenPrediction(const Model& model, MtpLayers layers, const at::TensorOptions& options);
  std::string_view kind() const override { return "multi_token_prediction"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes}; }
  // Computes with the model's embedding.
  void share(const at::Tensor& weight) { embedding_.weight = weight; }

  // hidden [tokens, width] and a batch whose labels are those of another token to the sum of its losses.
  using LossOf = std::function<at::Tensor(const at::Tensor& hidden, const Batch& batch)>;
  // What is added to the sum of the token losses: of the hidden states after the last norm, one number.
  at::Tensor loss(at::Tensor hidden, const Batch& batch, const LossOf& loss_of);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: loss() takes the head too

 private:
  at::Tensor head(int64_t place, at::Tensor hidden, const at::Tensor& tokens, const Batch& batch);

  MtpHeads form_;
  Embedding embedding_;
  MtpLayers layers_;
};

// tokens, or labels with Batch::kIgnore as `beyond`, int64 [rows, sequence]: those so many places later, and
// `beyond` where the row ends before.
HEDDLE_API at::Tensor later_tokens(const at::Tensor& tokens, int64_t places, int64_t beyond);

// The batch's labels so many places later; where the row or the document ends before, Batch::kIgnore.
HEDDLE_API at::Tensor later_labels(const Batch& batch, int64_t places);

}  // namespace heddle::decoder
