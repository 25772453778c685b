// Linear layer, y = x W^T + b: the module, its autograd node, and the seam of tensor parallelism and
// adapters.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle {

class Linear;
class WeightGradients;

namespace model {

// A few tensors, stored without an allocation.
using FewTensors = c10::SmallVector<at::Tensor, 3>;

// Returns x W^T + b, [..., out]. x [..., in], weight [out, in], bias [out] or undefined. The backward has two
// matrix products. If `later` (Batch::weight_gradients; may be null) defers, it receives the weight gradient.
HEDDLE_API at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             WeightGradients* later = nullptr);

// Returns residual + linear(x); the matrix product accumulates into the residual.
HEDDLE_API at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias, WeightGradients* later = nullptr);

// The memory layout of the outputs of several layers. apart: each is contiguous. columns: if the weights are
// adjacent in one storage, one product computes all outputs as columns of one matrix.
enum class Outputs { apart, columns };

// Returns the outputs of all layers for x, as one node with one sum of dX. Ignores the seams of the layers.
HEDDLE_API FewTensors products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                               Outputs outputs = Outputs::apart);

// Gradients of one linear layer.
struct LinearGradients {
  at::Tensor weight, rows;  // [out, in] and [rows, in], each with its own storage; undefined if not wanted
};
enum class LinearWanted { weight, rows, both };

// The products of one call of layers with the same input. Links of Linear::instead derive from it to compute
// in another precision, such as fp8 or packed 4-bit weights. One object serves the forward and the backward
// of a call, so that it can convert the input once for all layers. Below autograd, on any device including
// meta, in any dtype. Rows and weights arrive in the autocast dtype; integer weights are unchanged.
class HEDDLE_API LinearProducts {
 public:
  virtual ~LinearProducts();
  // Returns the output of layer `index`, [rows, out]. rows [rows, in], weight [out, in] (or packed), bias
  // [out] or undefined.
  virtual at::Tensor forward(size_t index, const at::Tensor& rows, const at::Tensor& weight,
                             const at::Tensor& bias) = 0;
  // Called after the forward of all layers, to free data that the backward does not need.
  virtual void end_forward() {}
  // Returns the gradients for dy [rows, out]. rows are undefined if they were not saved. The bias gradient is
  // the sum of dy.
  virtual LinearGradients backward(size_t index, const at::Tensor& dy, const at::Tensor& rows,
                                   const at::Tensor& weight, LinearWanted wanted) = 0;
  // Returns whether rows are saved even if no weight trains.
  virtual bool keeps_rows() const { return false; }
};

// Returns the outputs of all layers for x [..., in], in the dtype of x or of autocast, as one node with one
// sum of dX.
HEDDLE_API FewTensors products_by(std::unique_ptr<LinearProducts> how, std::span<Linear* const> layers,
                                  const at::Tensor& x);

}  // namespace model

// Linear layer with the slots "weight" [out, in] and optionally "bias" [out], named as in Hugging Face
// checkpoints.
class HEDDLE_API Linear : public Module {
 public:
  enum class Bias { none, zeros };
  Linear(int64_t in, int64_t out, Bias bias, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "linear"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::projection}; }

  at::Tensor weight, bias;

  // The seam of tensor parallelism and adapters: links wrap or replace model::products, between the seams
  // input and output. Layers with the same links and the same input are computed by one call, so the input is
  // gathered only once. An in_place link adds the bias itself, after its sum over ranks.
  using Instead =
      Chain<model::FewTensors(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch)>;
  Instead instead{"Linear::instead"};
  // Returns whether there are no links and no seams.
  bool plain() const { return instead.empty() && input.empty() && output.empty(); }

  // Returns residual + call(x, batch), as one node if there are no seams.
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;
};

namespace model {

// Returns call(x, batch) of each layer. Layers without input seams and with the same links of `instead` are
// computed together, with one sum of dX.
HEDDLE_API FewTensors call_each(std::initializer_list<Linear*> layers, const at::Tensor& x,
                                const Batch& batch, Outputs outputs = Outputs::apart);

}  // namespace model
}  // namespace heddle

// Matrix products with the fastest kernel for this processor.

namespace heddle::model {

// Selects the kernel of fp32 products. Products of at least 2^22 multiplications use heddle's packed kernel
// (grouped_product_cpu.h) on AMD processors with AVX-512, where MKL does not use it, if each matrix has a dim
// of stride 1. One row times the weight of a linear layer uses another kernel (row_product_cpu.h), because
// MKL's is not vectorized on AMD. Other products use at::mm. The selection depends only on the processor,
// shapes and strides, so results are bitwise reproducible. Works for any device and dtype.
//
// Call below autograd. Nothing is recorded, and the version counters of `out` and `sum` may not change, so
// these tensors must not be saved by autograd. They must not share memory with a or b.

// Returns a b + plus, [m, n], for a [m, k] and b [k, n]. plus: undefined, one row [n], or [m, n].
HEDDLE_API at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus = {});

// out = a b + plus.
HEDDLE_API void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                                    const at::Tensor& plus = {});

// sum += a b.
HEDDLE_API void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::model
