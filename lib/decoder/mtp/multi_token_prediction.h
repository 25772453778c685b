// Multi-token prediction heads: layers after the model's last norm that predict later tokens, with their own
// loss.
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

// A layer of a head. The first layer has a norm of the embedding, a norm of the hidden states and a
// projection of both; the last layer has a final norm.
class MtpLayer : public DecoderLayer {
 public:
  struct Place {
    bool first = false, last = false;  // position in the head
  };
  MtpLayer(const Layer& form, const Model& model, Parts parts, Place place, const at::TensorOptions& options);
  std::string_view kind() const override { return "mtp_layer"; }
  // Returns the input of the first layer: hidden and embedded [tokens, width].
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
  // Makes the heads use the model's embedding.
  void share(const at::Tensor& weight) { embedding_.weight = weight; }

  // Maps hidden [tokens, width] and a batch with shifted labels to the sum of its losses.
  using LossOf = std::function<at::Tensor(const at::Tensor& hidden, const Batch& batch)>;
  // Returns the scalar that is added to the sum of the token losses; `hidden` are the states after the last
  // norm.
  at::Tensor loss(at::Tensor hidden, const Batch& batch, const LossOf& loss_of);

 protected:
  // throws: use loss(), which takes the head too
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor head(int64_t place, at::Tensor hidden, const at::Tensor& tokens, const Batch& batch);

  MtpHeads form_;
  Embedding embedding_;
  MtpLayers layers_;
};

// Returns tokens, or labels with Batch::kIgnore as `beyond`, int64 [rows, sequence], shifted by `places`;
// `beyond` after the end of a row.
HEDDLE_API at::Tensor later_tokens(const at::Tensor& tokens, int64_t places, int64_t beyond);

// Returns the batch's labels shifted by `places`; Batch::kIgnore after the end of the row or the document.
HEDDLE_API at::Tensor later_labels(const Batch& batch, int64_t places);

}  // namespace heddle::decoder
