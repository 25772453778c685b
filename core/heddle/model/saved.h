// A tensor that an autograd node keeps for its backward, or, within a region, the place of one that is
// computed again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/region.h"

namespace heddle::model {

// Nodes of layers keep with it whatever their backward needs, always in the same order. Outside of a region
// it holds the tensor; within one only an index, so that the tensor goes when the forward has used it.
class HEDDLE_API Saved {
 public:
  // A value that the forward had before it made the node's outputs, or one that is no output.
  void save(const at::Tensor& value) {
    if (Region* region = Region::active(); region != nullptr) [[unlikely]]
      return save_in(*region, value);
    keep(value);
  }
  // The same for a parameter: a leaf is kept within a region too, because the model holds it anyway.
  void save_weight(const at::Tensor& weight);
  // One of the node's own outputs; called before it becomes one.
  void save_output(const at::Tensor& output);

  // The value, computed again if need be. Throws Error{internal} where the value was changed in place since,
  // or where the backward has already run.
  const at::Tensor& unpack();
  void reset();

 private:
  static constexpr int32_t kHeld = -1, kGone = -2;

  void keep(const at::Tensor& value) {
    value_ = value;
    if (value.defined()) version_ = value._version();
  }
  void save_in(Region& region, const at::Tensor& value);

  at::Tensor value_;
  c10::intrusive_ptr<Region> region_;
  uint32_t version_ = 0;
  int32_t place_ = kHeld;  // or the place among the region's values
};

}  // namespace heddle::model
