// Destructors that anchor the vtables, and default implementations.
#include "heddle/decoder/description.h"

#include <ATen/TensorOperators.h>

#include <utility>

namespace heddle::decoder {

LayerPart::~LayerPart() = default;
MixerState::~MixerState() = default;
Mixer::~Mixer() = default;
MixerMaker::~MixerMaker() = default;
ActivationMaker::~ActivationMaker() = default;

at::Tensor LayerPart::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  return residual + call(std::move(x), batch);
}

TensorPlan MixerMaker::tensor_plan() const {
  return {};
}

}  // namespace heddle::decoder
