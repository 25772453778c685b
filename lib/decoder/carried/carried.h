// What goes from layer to layer beside the hidden states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/decoder/description.h"
#include "heddle/model/unit.h"
#include "lib/decoder/latent/chosen_keys.h"

namespace heddle::decoder {

// One tensor between two layers.
struct CarriedTensor {
  enum class Kind {
    chosen_keys,   // ChosenKeys::keys, of the layer before
    layer_inputs,  // [tokens, (layers that follow) * LayerInputs::width], those of the next layer first
    keys,          // of the attention of `layer`, normalised and rotated
    values,
    block  // what came to `layer`, the first of a block (BlockResiduals)
  } kind = Kind::chosen_keys;
  int64_t layer = 0;
  bool operator==(const CarriedTensor&) const = default;
};

// Null: the layer has none.
const Indexer* indexer_of(const Layer& layer);

// What comes to a layer; the last place is what leaves the last layer: blocks alone, which the head mixes.
std::vector<CarriedTensor> carried_to(const Model& model, int64_t layer);

// Keys and values of a layer's attention, while the layer runs.
struct SharedKeys {
  at::Tensor keys, values;
  bool of_other = false;  // they come from an earlier layer
  bool for_later = false;
};

// The tensors that come to one layer and leave it.
class Carried {
 public:
  Carried() = default;  // nothing comes or leaves
  Carried(const Model& model, int64_t layer);

  // As Carrier has them.
  void take(Tensors carried);
  Tensors give();

  std::shared_ptr<ChosenKeys> chosen;  // null: the layer's attention is not sparse
  std::shared_ptr<SharedKeys> shared;  // null: the layer shares no keys
  at::Tensor own_inputs;               // of this layer [tokens, width]; undefined: there are none
  std::vector<at::Tensor> blocks;      // BlockResiduals: those that came, then the one that the layer begins

 private:
  at::Tensor leaving(const CarriedTensor& one);

  int64_t layer_ = 0, source_ = 0, width_ = 0;  // source: the layer whose keys this one has
  std::vector<CarriedTensor> in_, out_;
  Tensors held_;             // as in_
  at::Tensor later_inputs_;  // of the layers that follow
};

}  // namespace heddle::decoder
