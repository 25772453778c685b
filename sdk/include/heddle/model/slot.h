// ParameterSlot, a parameter of a model: its name and a pointer to the tensor with which the model computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// The argument of Init::by: one element of a parameter.
struct InitElement {
  std::span<const int64_t> index, shape;  // index in the whole parameter, and its shape
  double normal = 0;  // a draw from N(0, 1) for this element, independent of the parallelism
  double std = 0;     // Init::std
};

// The initial values of a parameter, which depend only on the seed, the name and the global element index, so
// that initial values are bitwise equal for any parallelism.
struct Init {
  enum class Kind { normal, zeros, ones, function } kind = Kind::normal;
  double std = 0.02;
  // Returns the value of an element for Kind::function. Depends only on its argument, and may be called from
  // several threads.
  using Function = double (*)(const InitElement& element);
  Function function = nullptr;
  // Upper bound, exclusive, of an integer parameter whose values in files are indices from 0. 0: no bound.
  int64_t below = 0;

  static constexpr Init by(Function function, double std = 0) { return {Kind::function, std, function}; }
};

// A parameter slot. The name is the key in checkpoints. Slots with the same name are tied: one parameter used
// in several places. A tensor on meta has only a shape and a dtype, and gets its values from a source or from
// init.
struct HEDDLE_API ParameterSlot {
  std::string name;
  at::Tensor* tensor = nullptr;
  Init init;
  bool foreign = false;  // the tensor belongs to a module of another library and is modified in place
  // The compute dtype under any mixed precision (Hugging Face's _keep_in_fp32_modules_strict). Empty: the
  // dtype of the strategy's policy.
  std::optional<at::ScalarType> compute = std::nullopt;

  bool trainable() const;  // requires_grad

  // Makes the model compute with `full`. A strategy passes a tensor of the slot's shape in any dtype. A
  // parallelizer passes this rank's part, which is smaller along the split dim, and describes it with a
  // Placed. Returns the leaf in which autograd accumulates the gradient. Keeps requires_grad. Slots with the
  // same name must point to the same tensor.
  at::Tensor point(at::Tensor full);
};

}  // namespace heddle
