// A parameter of a model: a name, and a pointer to the tensor that the model computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// How a parameter is initialised: a function of (seed, name, global element index), so any topology starts
// from the same bits.
struct Init {
  enum class Kind { normal, zeros, ones } kind = Kind::normal;
  double std = 0.02;
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

  // Makes the model compute with `full` (same shape and dtype as now, or another dtype). Returns the leaf
  // whose gradient autograd fills; requires_grad is kept.
  at::Tensor point(at::Tensor full);
};

}  // namespace heddle
