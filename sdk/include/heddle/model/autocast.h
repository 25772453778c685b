// Autocast for the layers of a model: products and attention in a lower dtype, everything else unchanged.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <unordered_map>

#include "heddle/base/export.h"

namespace heddle::model {

// PyTorch's autocast (Micikevicius et al. 2018) for layers that compute below its dispatch keys. Linear
// layers (the head within the loss too) and attention cast their inputs and weights and return `dtype`;
// norms, the loss, the rotary embedding and sums keep the dtype of their input and compute in fp32.
// Parameters keep their dtype and get gradients of it. fp64 is never cast. A strategy owns one and makes a
// Scope around its forward; it outlives the graphs.
class HEDDLE_API Autocast {
 public:
  // Casts of parameters: kept until parameters_changed(), or made for each use if whole parameters are freed.
  enum class Weights { kept, cast_each_time };
  Autocast(at::ScalarType dtype, Weights weights) : dtype_(dtype), weights_(weights) {}
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // That of the innermost scope on this thread; null: none.
  static Autocast* active();

  at::ScalarType dtype() const { return dtype_; }
  // Below autograd, and in backwards too. Undefined stays undefined.
  at::Tensor value(const at::Tensor& x) const;
  at::Tensor weight(const at::Tensor& weight);
  // Drops the kept casts.
  void parameters_changed() { kept_.clear(); }

  // Autocast until the end of the scope, also for ATen's operators (foreign units). Null: no effect.
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
    at::Tensor weight, cast;  // the weight too, so that no other tensor gets its address
  };
  at::ScalarType dtype_;
  Weights weights_;
  std::unordered_map<const at::TensorImpl*, Kept> kept_;
};

}  // namespace heddle::model
