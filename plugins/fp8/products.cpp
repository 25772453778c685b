// Products of operands that are rounded to fp8. The backward rounds inputs and weights again.
#include "products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max.h>

#include <array>
#include <memory>
#include <utility>

#include "heddle/nn/device_ops.h"
#include "heddle/ops/compute_log.h"

namespace heddle::fp8 {
namespace {

constexpr double kSmallest = 1e-12;
constexpr int64_t kSizes = 16;  // the hardware multiplies blocks of this size

struct Rounded {
  at::Tensor value;    // in fp8
  at::Tensor inverse;  // inverse of the scale, float32, one element
  at::Tensor across;   // the value transposed, contiguous; undefined: not created
};

// Layouts that the products need.
enum class Layouts { rows, both };

Rounded rounded(const at::Tensor& x, at::ScalarType type, Layouts layouts) {
  if (const auto kernel = model::device_kernel(&model::DeviceOps::round_fp8, x); kernel != nullptr) {
    const at::TensorOptions options = x.options().dtype(type);
    Rounded out{at::empty(x.sizes(), options), at::empty({}, x.options().dtype(at::kFloat)), {}};
    if (layouts == Layouts::both) out.across = at::empty({x.size(1), x.size(0)}, options);
    if (kernel(x, out.value, out.across, out.inverse)) return out;
  }
  const double most = type == at::kFloat8_e5m2 ? 57344 : 448;
  const at::Tensor scale = most / at::max(at::abs(x)).to(at::kDouble).clamp_min(kSmallest);
  const at::Tensor narrow = scale.to(at::kFloat);
  return {at::clamp(x.to(at::kFloat) * narrow, -most, most).to(type), narrow.reciprocal(), {}};
}

// Pads the inner dim of a product to a multiple of 16 with zeros, which do not affect the result.
at::Tensor padded(const at::Tensor& x, int64_t dim) {
  const int64_t missing = (kSizes - x.size(dim) % kSizes) % kSizes;
  if (missing == 0) return x;
  return at::constant_pad_nd(x.view(at::kByte),
                             dim == 0 ? at::IntArrayRef{0, 0, 0, missing} : at::IntArrayRef{0, missing}, 0)
      .view(x.scalar_type());
}

// LibTorch has no _scaled_mm for meta tensors.
at::Tensor product_on_meta(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  record_operator("aten::_scaled_mm",
                  {2 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                   static_cast<double>(a.nbytes() + b.nbytes()), static_cast<double>(out.nbytes())},
                  ProductShape{1, a.size(0), b.size(1), a.size(1), a.scalar_type()});
  return out;
}

// Multiplies a [m, k] and b [k, n]. Not used on the CPU, where _scaled_mm needs AVX-512.
at::Tensor product(const Rounded& a, const Rounded& b, at::ScalarType dtype, bool emulate) {
  if (emulate || a.value.is_cpu()) {
    const auto whole = [](const Rounded& x) { return x.value.to(at::kFloat) * x.inverse; };
    return at::matmul(whole(a), whole(b)).to(dtype);
  }
  const at::Tensor rows = padded(a.value.contiguous(), 1);
  const at::Tensor columns = padded((b.across.defined() ? b.across : b.value.t()).contiguous(), 1).t();
  if (rows.is_meta()) return product_on_meta(rows, columns, dtype);
  return at::_scaled_mm(rows, columns, a.inverse, b.inverse, {}, {}, dtype);
}

Rounded transposed(const Rounded& x) {
  return {x.across.defined() ? x.across : x.value.t(), x.inverse, x.value};
}

class Fp8Products final : public model::LinearProducts {
 public:
  explicit Fp8Products(bool emulate) : emulate_(emulate) {}

  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    if (rows.is_meta()) return at::empty({rows.size(0), weight.size(0)}, rows.options());
    if (!rows_.value.defined()) rows_ = rounded(rows.contiguous(), at::kFloat8_e4m3fn, Layouts::rows);
    const at::Tensor y = product(rows_, transposed(rounded(weight, at::kFloat8_e4m3fn, Layouts::rows)),
                                 rows.scalar_type(), emulate_);
    return bias.defined() ? y.add_(bias) : y;
  }
  void end_forward() override { rows_ = {}; }

  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    const at::ScalarType dtype = dy.scalar_type();
    const Rounded of_dy = rounded(dy.contiguous(), at::kFloat8_e5m2, Layouts::both);
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows) {
      if (!rows_.value.defined()) rows_ = rounded(rows.contiguous(), at::kFloat8_e4m3fn, Layouts::both);
      out.weight = product(transposed(of_dy), rows_, dtype, emulate_);
    }
    if (wanted != model::LinearWanted::weight)
      out.rows = product(of_dy, rounded(weight, at::kFloat8_e4m3fn, Layouts::both), dtype, emulate_);
    return out;
  }

 private:
  bool emulate_;
  Rounded rows_;  // shared by the layers of a forward, and recomputed for those of its backward
};

// Uses ExpertProducts for a linear layer, as for one expert.
class OfOneExpert final : public model::LinearProducts {
 public:
  explicit OfOneExpert(std::shared_ptr<const model::ExpertProducts> products)
      : products_(std::move(products)) {}

  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    if (rows.is_meta()) return at::empty({rows.size(0), weight.size(0)}, rows.options());
    const at::Tensor y = products_->forward(rows, weight.unsqueeze(0), all(rows));
    return bias.defined() ? y.add_(bias) : y;
  }

  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows) out.weight = products_->weight_gradient(dy, rows, all(dy))[0];
    if (wanted != model::LinearWanted::weight)
      out.rows = products_->backward(dy, weight.unsqueeze(0), all(dy));
    return out;
  }

 private:
  static std::array<int64_t, 2> all(const at::Tensor& rows) { return {0, rows.size(0)}; }

  std::shared_ptr<const model::ExpertProducts> products_;
};

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const How& how) {
  if (how.products) return model::products_by(std::make_unique<OfOneExpert>(how.products), layers, x);
  return model::products_by(std::make_unique<Fp8Products>(how.emulate), layers, x);
}

}  // namespace heddle::fp8
