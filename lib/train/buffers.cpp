// Finding a free buffer among those that are kept.
#include "lib/train/buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace heddle::train {
namespace {

bool is_free(const at::Tensor& buffer) {
  return buffer.storage().use_count() == 1;
}

}  // namespace

at::Tensor Buffers::take(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.scalar_type() == dtype && buffer.sizes() == sizes && buffer.device() == device &&
           is_free(buffer);
  };
  if (const auto found = std::find_if(kept_.begin(), kept_.end(), fits); found != kept_.end())
    return found->variable_data();
  const at::Tensor fresh = at::empty(sizes, at::TensorOptions(dtype).device(device));
  if (most_ == 0) return fresh;
  if (kept_.size() >= most_) {  // one of another shape makes room
    const auto unused = std::find_if(kept_.begin(), kept_.end(), is_free);
    if (unused == kept_.end()) return fresh;
    kept_.erase(unused);
  }
  kept_.push_back(fresh);
  return fresh.variable_data();
}

}  // namespace heddle::train
