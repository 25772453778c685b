// Keeps tensors, and asks the region for those that were not kept.
#include "heddle/model/autograd_node.h"

#include <utility>

#include "heddle/base/error.h"

namespace heddle::model {

void Saved::save_weight(const at::Tensor& weight) {
  if (Region* region = Region::active(); region != nullptr && weight.defined() && !weight.is_leaf())
    return save_in(*region, weight);
  keep(weight);
}

void Saved::save_output(const at::Tensor& output) {
  if (Region* region = Region::active(); region != nullptr) return save_in(*region, output);
  keep(output.defined() ? output.tensor_data() : output);
}

void Saved::save_in(Region& region, const at::Tensor& value) {
  place_ = region.add(value);
  if (place_ >= 0) region_ = c10::intrusive_ptr<Region>::reclaim_copy(&region);
}

const at::Tensor& Saved::unpack() {
  if (place_ == kGone)
    throw Error(ErrorCode::internal, "model", "the backward of this graph has already run",
                "run the forward again, or keep the graph in the first backward");
  if (region_) {
    Region::Value value = std::exchange(region_, {})->take(place_);
    value_ = std::move(value.tensor);
    version_ = value.version;
    place_ = kHeld;
  }
  if (value_.defined() && value_._version() != version_)
    throw Error(ErrorCode::internal, "model",
                "a tensor that the backward needs was changed in place after the forward",
                "change a copy of it, or wait for the backward");
  return value_;
}

void Saved::reset() {
  value_.reset();
  region_.reset();
  place_ = kGone;
}

}  // namespace heddle::model
