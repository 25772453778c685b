// Products and attention in a lower dtype, everything else as it stands: autocast, for the layers of a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <unordered_map>

#include "heddle/base/export.h"

namespace heddle::model {

// PyTorch's autocast (Micikevicius et al. 2018) for layers that compute below its dispatch keys. Linear
// layers (the head within the loss too) and attention cast their inputs and weights and return `dtype`;
// norms, the loss, the rotary embedding and sums take what comes, in fp32 inside. Parameters keep their dtype
// and get gradients of it. fp64 is never cast. A strategy owns one and makes a Scope around its forward; it
// outlives the graphs.
class HEDDLE_API Autocast {
 public:
  // Casts of parameters: one until parameters_changed(), or one for each use, where whole parameters do not
  // stay.
  enum class Weights { kept, cast_each_time };
  Autocast(at::ScalarType dtype, Weights weights) : dtype_(dtype), weights_(weights) {}
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // Of the innermost scope on this thread; null: none.
  static Autocast* active();

  at::ScalarType dtype() const { return dtype_; }
  // Below autograd, and in backwards too. Undefined stays undefined.
  at::Tensor value(const at::Tensor& x) const;
  at::Tensor weight(const at::Tensor& weight);
  // The kept casts are of old values.
  void parameters_changed() { kept_.clear(); }

  // Autocast from here to the end of the scope, of ATen's operators too (foreign units). Null: nothing
  // changes.
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
