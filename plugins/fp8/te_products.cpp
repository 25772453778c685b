// Products with the scaling of transformer_engine/common/recipe. A block lies along the inner dim of its
// product, so the products of a layer round one tensor in more than one way, each time from the original
// values.
#include "te_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "heddle/nn/linear.h"

namespace heddle::fp8 {
namespace {

using Begins = std::span<const int64_t>;

constexpr double kE4m3 = 448, kE5m2 = 57344;
constexpr double kLeast = 0x1p-110;  // smallest maximum whose scale fits float32
constexpr int64_t kExponentBits = 0x7f800000;

int64_t up_to(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

at::Tensor on_device_of(const std::vector<int64_t>& numbers, const at::Tensor& x) {
  return at::tensor(numbers, at::kLong).to(x.device());
}

// x: [rows, columns].
at::Tensor rounded_matrix(const at::Tensor& x, int64_t height, int64_t width) {
  const int64_t rows = up_to(x.size(0), height), columns = up_to(x.size(1), width);
  const at::Tensor whole =
      at::constant_pad_nd(x.to(at::kFloat), {0, columns - x.size(1), 0, rows - x.size(0)}, 0).contiguous();
  const at::Tensor blocks = whole.view({rows / height, height, columns / width, width});
  const at::Tensor ratio = kE4m3 / at::amax(at::abs(blocks), {1, 3}, true).clamp_min(kLeast);
  const at::Tensor scale = at::bitwise_and(ratio.view(at::kInt), kExponentBits).view(at::kFloat);
  const at::Tensor rounded = (blocks * scale).to(at::kFloat8_e4m3fn).to(at::kFloat).div_(scale);
  return rounded.view({rows, columns})
      .narrow(0, 0, x.size(0))
      .narrow(1, 0, x.size(1))
      .to(x.scalar_type())
      .contiguous();
}

// Rounds blocks of `height` rows that do not cross from one expert to the next.
at::Tensor rounded_along_rows(const at::Tensor& x, Begins begins, int64_t height) {
  if (begins.size() == 2) return rounded_in_blocks(x, height, 1);
  if (x.is_meta()) return x;
  std::vector<int64_t> places;
  int64_t end = 0;
  for (size_t e = 0; e + 1 < begins.size(); ++e) {
    for (int64_t row = 0; row < begins[e + 1] - begins[e]; ++row) places.push_back(end + row);
    end += up_to(begins[e + 1] - begins[e], height);
  }
  const at::Tensor at = on_device_of(places, x);
  const at::Tensor apart = at::zeros({end, x.size(1)}, x.options()).index_copy_(0, at, x);
  return at::index_select(rounded_in_blocks(apart, height, 1), 0, at);
}

class BlockProducts final : public model::ExpertProducts {
 public:
  BlockProducts(int64_t width, int64_t height_of_weights) : width_(width), height_(height_of_weights) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& weights, Begins begins) const override {
    return ExpertProducts::forward(rounded_in_blocks(x, 1, width_),
                                   rounded_in_blocks(weights, height_, width_), begins);
  }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& weights, Begins begins) const override {
    return ExpertProducts::backward(rounded_in_blocks(dy, 1, width_),
                                    rounded_in_blocks(weights, width_, height_), begins);
  }
  at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, Begins begins) const override {
    return ExpertProducts::weight_gradient(rounded_along_rows(dy, begins, width_),
                                           rounded_along_rows(x, begins, width_), begins);
  }

 private:
  int64_t width_, height_;
};

struct Scaled {
  at::Tensor value;    // fp8 values, in the dtype of the product
  at::Tensor inverse;  // float32 [experts]
};

// scale: one element, or [rows, 1].
at::Tensor scaled(const at::Tensor& x, const at::Tensor& scale, bool gradient) {
  const double largest = gradient ? kE5m2 : kE4m3;
  return at::clamp(x.to(at::kFloat) * scale, -largest, largest)
      .to(gradient ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn)
      .to(x.scalar_type());
}

at::Tensor scale_of(const at::Tensor& most, bool gradient) {
  return (gradient ? kE5m2 : kE4m3) / most.to(at::kFloat).clamp_min(kLeast);
}

// weights: [experts, out, in], concatenated.
Scaled scaled_weights(const at::Tensor& weights) {
  const at::Tensor scale = scale_of(at::amax(at::abs(weights), {1, 2}), false);
  const at::Tensor out = at::empty(weights.sizes(), weights.options());
  for (int64_t e = 0; e < weights.size(0); ++e)
    out.select(0, e).copy_(scaled(weights.select(0, e), scale[e], false));
  return {out, scale.reciprocal()};
}

class CurrentProducts final : public model::ExpertProducts {
 public:
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weights, Begins begins) const override {
    if (x.is_meta()) return ExpertProducts::forward(x, weights, begins);
    return of_rows(x, weights, begins, false);
  }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& weights, Begins begins) const override {
    if (dy.is_meta()) return ExpertProducts::backward(dy, weights, begins);
    return of_rows(dy, weights, begins, true);
  }
  at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, Begins begins) const override {
    if (dy.is_meta()) return ExpertProducts::weight_gradient(dy, x, begins);
    const at::Tensor own = expert_of_rows(begins, dy);
    const Scaled of_dy = rows(dy, own, begins, true), of_x = rows(x, own, begins, false);
    const at::Tensor out = ExpertProducts::weight_gradient(of_dy.value, of_x.value, begins);
    return out.mul_((of_dy.inverse * of_x.inverse).view({-1, 1, 1}));
  }

 private:
  static at::Tensor expert_of_rows(Begins begins, const at::Tensor& x) {
    std::vector<int64_t> out;
    for (size_t e = 0; e + 1 < begins.size(); ++e)
      out.insert(out.end(), static_cast<size_t>(begins[e + 1] - begins[e]), static_cast<int64_t>(e));
    return on_device_of(out, x);
  }
  static Scaled rows(const at::Tensor& x, const at::Tensor& own, Begins begins, bool gradient) {
    const auto experts = static_cast<int64_t>(begins.size()) - 1;
    const at::Tensor most = at::zeros({experts}, x.options().dtype(at::kFloat));
    if (x.numel() > 0) most.scatter_reduce_(0, own, at::amax(at::abs(x), {1}).to(at::kFloat), "amax");
    const at::Tensor scale = scale_of(most, gradient);
    return {scaled(x, at::index_select(scale, 0, own).unsqueeze(1), gradient), scale.reciprocal()};
  }
  at::Tensor of_rows(const at::Tensor& x, const at::Tensor& weights, Begins begins, bool back) const {
    const at::Tensor own = expert_of_rows(begins, x);
    const Scaled of_x = rows(x, own, begins, back);
    const Scaled of_weights = scaled_weights(weights);
    const at::Tensor out = back ? ExpertProducts::backward(of_x.value, of_weights.value, begins)
                                : ExpertProducts::forward(of_x.value, of_weights.value, begins);
    return out.mul_(at::index_select(of_x.inverse * of_weights.inverse, 0, own).unsqueeze(1));
  }
};

}  // namespace

at::Tensor rounded_in_blocks(const at::Tensor& x, int64_t height, int64_t width) {
  if (x.is_meta() || x.numel() == 0) return x;
  if (x.dim() == 2) return rounded_matrix(x, height, width);
  // One expert at a time: float32 temporaries then have the size of one expert.
  const at::Tensor out = at::empty(x.sizes(), x.options());
  for (int64_t i = 0; i < x.size(0); ++i)
    out.select(0, i).copy_(rounded_in_blocks(x.select(0, i), height, width));
  return out;
}

std::shared_ptr<const model::ExpertProducts> te_products(Recipe recipe) {
  if (recipe == Recipe::current) return std::make_shared<CurrentProducts>();
  return recipe == Recipe::block ? std::make_shared<BlockProducts>(128, 128)
                                 : std::make_shared<BlockProducts>(32, 1);
}

}  // namespace heddle::fp8
