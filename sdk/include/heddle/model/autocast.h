// Autocast for the layers of a model: matrix products and attention run in a lower dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <unordered_map>

#include "heddle/base/export.h"

namespace heddle::model {

// PyTorch's autocast (Micikevicius et al. 2018) for layers that compute below its dispatch keys. Linear
// layers (including the head within the loss) and attention cast their inputs and weights and return `dtype`.
// Norms, the loss, the rotary embedding and sums keep the dtype of their input and compute in fp32.
// Parameters keep their dtype and receive gradients in it. fp64 is never cast. A strategy owns an Autocast,
// which outlives the autograd graphs, and opens a Scope around its forward.
class HEDDLE_API Autocast {
 public:
  // Caching of parameter casts: kept until parameters_changed(), or repeated for each use if whole parameters
  // are freed.
  enum class Weights { kept, cast_each_time };
  Autocast(at::ScalarType dtype, Weights weights) : dtype_(dtype), weights_(weights) {}
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // Returns the Autocast of the innermost scope on this thread, or null.
  static Autocast* active();

  at::ScalarType dtype() const { return dtype_; }
  // Returns the input or the weight cast to the dtype, below autograd, in forward and backward. Undefined
  // tensors stay undefined.
  at::Tensor value(const at::Tensor& x) const;
  at::Tensor weight(const at::Tensor& weight);
  // Discards the kept casts.
  void parameters_changed() { kept_.clear(); }

  // Enables autocast until the end of the scope, including for ATen operators (foreign units). null has no
  // effect.
  class HEDDLE_API Scope {
   public:
    explicit Scope(Autocast* autocast);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Aten {
      bool enabled;
      at::ScalarType dtype;
    };
    Autocast *autocast_, *outer_ = nullptr;
    std::array<Aten, 2> aten_{};
  };

 private:
  struct Kept {
    at::Tensor weight, cast;  // holds the weight so that no other tensor gets its address
  };
  at::ScalarType dtype_;
  Weights weights_;
  std::unordered_map<const at::TensorImpl*, Kept> kept_;
};

}  // namespace heddle::model
