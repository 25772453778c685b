// A linear layer, y = x W^T + b: the module that parallelizers split, and its one autograd node.
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

// At most a few tensors, without an allocation.
using FewTensors = c10::SmallVector<at::Tensor, 3>;

// x [..., in], weight [out, in], bias [out] or undefined; returns [..., out]. The backward is two products;
// the one for the weight is left in `later` if that defers (Batch::weight_gradients; may be null).
HEDDLE_API at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             WeightGradients* later = nullptr);

// residual + linear(x): the product itself adds the residual.
HEDDLE_API at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias, WeightGradients* later = nullptr);

// The layout of the outputs of several layers: each contiguous; or, if the weights are adjacent in one
// storage, as columns of one matrix, which one product computes.
enum class Outputs { apart, columns };

// The outputs of all layers for x, as one node with one sum of dX; their seams are not used.
HEDDLE_API FewTensors products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                               Outputs outputs = Outputs::apart);

struct LinearGradients {
  at::Tensor weight, rows;  // [out, in], [rows, in], in memory of their own; undefined: not wanted
};
enum class LinearWanted { weight, rows, both };

// The products of one call of layers with one input, for links of Linear::instead that multiply other numbers
// than these: rounded to eight bits, packed in four. One object serves the forward of a call and its
// backward, so that what is made of the input is made once for all layers. Below autograd, on any device and
// meta, in any dtype. Rows and weights come in the dtype of an active autocast, integers as they are.
class HEDDLE_API LinearProducts {
 public:
  virtual ~LinearProducts();
  // Of layer `index` of the call: rows [rows, in], weight [out, in] (or as it is packed), bias [out] or
  // undefined; returns [rows, out].
  virtual at::Tensor forward(size_t index, const at::Tensor& rows, const at::Tensor& weight,
                             const at::Tensor& bias) = 0;
  // After the forward of all layers: drops what the backward does not need.
  virtual void end_forward() {}
  // dy [rows, out]. rows are undefined if they were not kept. The gradient of the bias is the sum of dy.
  virtual LinearGradients backward(size_t index, const at::Tensor& dy, const at::Tensor& rows,
                                   const at::Tensor& weight, LinearWanted wanted) = 0;
  // Rows are kept for gradients of weights; true: also if no weight trains.
  virtual bool keeps_rows() const { return false; }
};

// The outputs of all layers for x [..., in], in the dtype of x or of autocast, as one node with one sum of
// dX.
HEDDLE_API FewTensors products_by(std::unique_ptr<LinearProducts> how, std::span<Linear* const> layers,
                                  const at::Tensor& x);

}  // namespace model

// Slots "weight" [out, in] and, if asked for, "bias" [out], named as in Hugging Face checkpoints.
class HEDDLE_API Linear : public Module {
 public:
  enum class Bias { none, zeros };
  Linear(int64_t in, int64_t out, Bias bias, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "linear"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::projection}; }

  at::Tensor weight, bias;

  // The seam of tensor parallelism and of adapters: links compute around model::products or in its place,
  // between the seams input and output. Layers that share their links and get one input are computed by one
  // call, so that the input is gathered once for all of them. A link in place adds the bias itself: a sum
  // over ranks comes before the bias.
  using Instead =
      Chain<model::FewTensors(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch)>;
  Instead instead{"Linear::instead"};
  // No link and no seam.
  bool plain() const { return instead.empty() && input.empty() && output.empty(); }

  // residual + call(x, batch), as one node if there are no seams.
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;
};

namespace model {

// What each layer's call(x, batch) returns. Layers without input seams that share the links of `instead` (or
// have none) are computed together, with one sum of dX.
HEDDLE_API FewTensors call_each(std::initializer_list<Linear*> layers, const at::Tensor& x,
                                const Batch& batch, Outputs outputs = Outputs::apart);

}  // namespace model
}  // namespace heddle

// Matrix products by what is fastest on this processor.

namespace heddle::model {

// Float32 products of 2^22 multiplications and more go to packed products of heddle
// (grouped_product_cpu.h) on AMD processors with AVX-512, which MKL does not use there, if each matrix has a
// stride of 1; one row times a linear layer's weight goes to another kernel (row_product_cpu.h), because
// MKL's is not vectorized on AMD; all others are at::mm. The choice depends on the processor, shapes and
// strides alone, so that a run repeats its bits. On any device, of any dtype.
// For use below autograd: nothing is recorded, and the version counters of `out` and `sum` may stay as they
// are, so these must not be tensors that autograd has saved. They must not share memory with a or b.

// a b + plus: [m, k] and [k, n] to [m, n]. plus: undefined, one row [n], or [m, n].
HEDDLE_API at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus = {});

// out = a b + plus.
HEDDLE_API void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                                    const at::Tensor& plus = {});

// sum += a b.
HEDDLE_API void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::model
