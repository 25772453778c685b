// The scope, and the cache of casts.
#include "heddle/model/autocast.h"

#include <ATen/core/grad_mode.h>

#include <array>
#include <utility>

#include "core/model/aten_autocast.h"

namespace heddle::model {
namespace {

constexpr std::array kDevices = {at::kCPU, at::kCUDA};
thread_local Autocast* active_autocast = nullptr;

bool is_cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble &&
         tensor.scalar_type() != dtype;
}

}  // namespace

Autocast* Autocast::active() {
  return active_autocast;
}

at::Tensor Autocast::value(const at::Tensor& x) const {
  return is_cast(x, dtype_) ? x.to(dtype_) : x;
}

at::Tensor Autocast::weight(const at::Tensor& weight) {
  if (!is_cast(weight, dtype_)) return weight;
  if (weights_ == Weights::cast_each_time || !weight.is_leaf() || !weight.requires_grad())
    return weight.to(dtype_);
  Kept& kept = kept_[weight.unsafeGetTensorImpl()];
  if (!kept.cast.defined()) kept = {weight, weight.to(dtype_)};
  return kept.cast;
}

Autocast::Scope::Scope(Autocast* autocast) : autocast_(autocast) {
  if (autocast_ == nullptr) return;
  outer_ = std::exchange(active_autocast, autocast_);
  for (size_t i = 0; i < kDevices.size(); ++i) {
    aten_[i] = {at::autocast::is_autocast_enabled(kDevices[i]),
                at::autocast::get_autocast_dtype(kDevices[i])};
    at::autocast::set_autocast_enabled(kDevices[i], true);
    at::autocast::set_autocast_dtype(kDevices[i], autocast_->dtype_);
  }
  at::autocast::increment_nesting();
}

Autocast::Scope::~Scope() {
  if (autocast_ == nullptr) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], aten_[i].enabled);
    at::autocast::set_autocast_dtype(kDevices[i], aten_[i].dtype);
  }
  active_autocast = outer_;
}

}  // namespace heddle::model
