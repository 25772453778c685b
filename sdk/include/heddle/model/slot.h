// A parameter of a model: a name, and a pointer to the tensor that the model computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// One element of a parameter, for Init::by.
struct InitElement {
  std::span<const int64_t> index, shape;  // its place in the whole parameter, and the shape of that
  double normal = 0;                      // its own draw of N(0, 1), the same for every topology
  double std = 0;                         // the Init's
};

// How a parameter is initialised: a function of (seed, name, global element index), so any topology starts
// from the same bits.
struct Init {
  enum class Kind { normal, zeros, ones, function } kind = Kind::normal;
  double std = 0.02;
  // Of Kind::function: the element's value, from its argument alone; called from several threads.
  using Function = double (*)(const InitElement& element);
  Function function = nullptr;
  // Of a parameter of whole numbers that are places: values of files are from 0 to below this. 0: any.
  int64_t below = 0;

  static constexpr Init by(Function function, double std = 0) { return {Kind::function, std, function}; }
};

// The name is the checkpoint key. Two slots of one name are tied: one parameter used in two places.
// The tensor may be on meta: it then has a shape and a dtype, and gets its values from a source or from init.
struct HEDDLE_API ParameterSlot {
  std::string name;
  at::Tensor* tensor = nullptr;
  Init init;
  bool foreign = false;  // the tensor belongs to another library's module and is changed in place
  // The compute dtype under any mixed precision (Hugging Face's _keep_in_fp32_modules_strict); empty: that of
  // the strategy's policy.
  std::optional<at::ScalarType> compute = std::nullopt;

  bool trainable() const;  // requires_grad

  // Makes the model compute with `full`. A strategy gives a tensor of the slot's shape, in any dtype; a
  // parallelizer gives this rank's part, which has fewer indices along the dim that it splits, and describes
  // it with a Placed. Returns the leaf whose gradient autograd fills; requires_grad is kept. Slots of one
  // name are pointed at the same tensor.
  at::Tensor point(at::Tensor full);
};

}  // namespace heddle
