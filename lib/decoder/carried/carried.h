// Tensors passed from layer to layer besides the hidden states.
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
    chosen_keys,   // ChosenKeys::keys of the previous layer
    layer_inputs,  // [tokens, (remaining layers) * LayerInputs::width], the next layer's first
    keys,          // of the attention of `layer`, normalized and rotated
    values,
    block  // input of `layer`, the first of a block (BlockResiduals)
  } kind = Kind::chosen_keys;
  int64_t layer = 0;
  bool operator==(const CarriedTensor&) const = default;
};

// Returns null if the layer has no indexer.
const Indexer* indexer_of(const Layer& layer);

// Returns the tensors that a layer receives. The index after the last layer gives the last layer's output:
// only blocks, which the head sums.
std::vector<CarriedTensor> carried_to(const Model& model, int64_t layer);

// Keys and values of a layer's attention, valid while the layer runs.
struct SharedKeys {
  at::Tensor keys, values;
  bool of_other = false;  // from an earlier layer
  bool for_later = false;
};

// Tensors that one layer receives and passes on.
class Carried {
 public:
  Carried() = default;  // no tensors
  Carried(const Model& model, int64_t layer);

  // Implement Carrier.
  void take(Tensors carried);
  Tensors give();

  std::shared_ptr<ChosenKeys> chosen;  // null: no sparse attention
  std::shared_ptr<SharedKeys> shared;  // null: the layer shares no keys
  at::Tensor own_inputs;               // inputs of this layer [tokens, width]; undefined: none
  std::vector<at::Tensor> blocks;  // BlockResiduals: received blocks, then the block that the layer starts

 private:
  at::Tensor leaving(const CarriedTensor& tensor);

  int64_t layer_ = 0, source_ = 0, width_ = 0;  // source_: layer whose keys this one uses
  std::vector<CarriedTensor> in_, out_;
  Tensors held_;             // in the order of in_
  at::Tensor later_inputs_;  // inputs of the following layers
};

}  // namespace heddle::decoder
