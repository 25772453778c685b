// The host's generator is compared by its next numbers: copying its state would cost more than a small layer.
#include "core/parallel/forward_state.h"

#include <ATen/Context.h>

#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/model/aten_autocast.h"

namespace heddle::parallel {
namespace {

constexpr std::array kCasting = {at::kCPU, at::kCUDA};

}  // namespace

ForwardState::ForwardState(c10::Device device)
    : device_(device),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      casts_(autocasts()),
      autocast_(model::Autocast::active()),
      draws_(std::make_unique<Draws>(draws_of(device))) {}

void ForwardState::forward_ended() {
  if (equal(*draws_, draws_of(device_))) draws_.reset();
}

void ForwardState::rewind() const {
  if (draws_) set(device_, *draws_);
}

ForwardState::Draws ForwardState::draws_of(c10::Device device) {
  Draws out;
  at::Generator host = at::globalContext().defaultGenerator(at::kCPU);
  {
    const std::lock_guard lock(host.mutex());
    auto* numbers = at::check_generator<at::CPUGeneratorImpl>(host);
    out.host = numbers->engine();
    out.half_drawn_float = numbers->next_float_normal_sample();
    out.half_drawn_double = numbers->next_double_normal_sample();
  }
  if (device.is_cpu() || device.is_meta()) return out;
  at::Generator there = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(there.mutex());
  out.device = there.get_state();
  return out;
}

void ForwardState::set(c10::Device device, const Draws& draws) {
  at::Generator host = at::globalContext().defaultGenerator(at::kCPU);
  {
    const std::lock_guard lock(host.mutex());
    auto* numbers = at::check_generator<at::CPUGeneratorImpl>(host);
    numbers->set_engine(draws.host);
    numbers->set_next_float_normal_sample(draws.half_drawn_float);
    numbers->set_next_double_normal_sample(draws.half_drawn_double);
  }
  if (!draws.device.defined()) return;
  at::Generator there = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(there.mutex());
  there.set_state(draws.device);
}

bool ForwardState::equal(const Draws& first, const Draws& second) {
  const auto &a = first.host.data(), &b = second.host.data();
  return a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_ &&
         first.half_drawn_float == second.half_drawn_float &&
         first.half_drawn_double == second.half_drawn_double &&
         (!first.device.defined() || std::memcmp(first.device.const_data_ptr(),
                                                 second.device.const_data_ptr(), first.device.nbytes()) == 0);
}

ForwardState::Autocasts ForwardState::autocasts() {
  Autocasts now;
  for (size_t i = 0; i < now.size(); ++i)
    now[i] = {at::autocast::is_autocast_enabled(kCasting[i]), at::autocast::get_autocast_dtype(kCasting[i])};
  return now;
}

void ForwardState::set(const Autocasts& states) {
  for (size_t i = 0; i < states.size(); ++i) {
    at::autocast::set_autocast_enabled(kCasting[i], states[i].enabled);
    at::autocast::set_autocast_dtype(kCasting[i], states[i].dtype);
  }
}

c10::Device first_device(std::span<const at::Tensor> inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined()) return input.device();
  return at::kCPU;
}

NoCastCache::NoCastCache() : cached_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

NoCastCache::~NoCastCache() {
  at::autocast::set_autocast_cache_enabled(cached_);
}

ForwardState::Again::Again(const ForwardState& then)
    : keys_(then.keys_), device_(then.device_), now_(autocasts()), autocast_(then.autocast_) {
  ForwardState::set(then.casts_);
  if (!then.draws_) return;
  hold_.emplace();
  draws_now_ = std::make_unique<Draws>(draws_of(device_));
  ForwardState::set(device_, *then.draws_);
}

ForwardState::Again::~Again() {
  if (draws_now_) ForwardState::set(device_, *draws_now_);
  ForwardState::set(now_);
}

}  // namespace heddle::parallel
