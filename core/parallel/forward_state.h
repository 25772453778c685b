// The thread state that a second run of a forward must restore.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "core/mesh/overlap.h"
#include "heddle/model/autocast.h"

namespace heddle::parallel {

// The device of the first input that is defined; else the CPU.
c10::Device first_device(std::span<const at::Tensor> inputs);

// Random generators, autocast and dispatch keys of this thread. Taken before a forward; generators are kept
// only where the forward drew from them.
class ForwardState {
 public:
  // The generators that a unit on this device may draw from: the host's and the device's own.
  explicit ForwardState(c10::Device device);
  void forward_ended();
  // Resets the generators before a forward is run again.
  void rewind() const;

  // Restores all of it until the end of the scope.
  class Again;

 private:
  struct Draws {
    at::mt19937 host;
    std::optional<float> half_drawn_float;  // numbers of a normal distribution come in pairs
    std::optional<double> half_drawn_double;
    at::Tensor device;
  };
  struct Autocast {
    bool enabled;
    at::ScalarType dtype;
    bool operator==(const Autocast&) const = default;
  };
  using Autocasts = std::array<Autocast, 2>;
  static Draws draws_of(c10::Device device);
  static void set(c10::Device device, const Draws& draws);
  static bool equal(const Draws& first, const Draws& second);
  static Autocasts autocasts();
  static void set(const Autocasts& states);

  c10::Device device_;
  c10::impl::LocalDispatchKeySet keys_;
  Autocasts casts_;
  model::Autocast* autocast_;
  std::unique_ptr<Draws> draws_;  // before the forward; null: it drew no random number
};

// Autocast without its cache: a cast made without a graph must not be reused with one.
class NoCastCache {
 public:
  NoCastCache();
  ~NoCastCache();
  NoCastCache(const NoCastCache&) = delete;
  NoCastCache& operator=(const NoCastCache&) = delete;

 private:
  bool cached_;
};

class ForwardState::Again {
 public:
  explicit Again(const ForwardState& then);
  ~Again();
  Again(const Again&) = delete;
  Again& operator=(const Again&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  c10::Device device_;
  Autocasts now_;
  model::Autocast::Scope autocast_;
  NoCastCache no_cache_;
  std::unique_ptr<Draws> draws_now_;
  std::optional<Overlap::Hold> hold_;  // generators are of all threads
};

}  // namespace heddle::parallel
