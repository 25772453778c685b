// The frequencies, the kept table of angles, and the rotation of q and k as one node.
#include "heddle/nn/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numbers>
#include <tuple>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/rotary_cpu.h"

namespace heddle {
namespace model {
namespace {

at::Tensor turn(const at::Tensor& x, const RotaryAngles& angles, double direction) {
  if (has_row_kernel(x)) {
    at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
    rotate_cpu(y, angles, direction);
    return y;
  }
  const int64_t half = angles.cos.size(1);
  const at::Tensor heads = x.reshape({x.size(0), -1, 2 * half});
  const at::Tensor a = heads.narrow(2, 0, half), b = heads.narrow(2, half, half);
  const at::Tensor c = angles.cos.unsqueeze(1), s = (angles.sin * direction).unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s}, 2).to(x.scalar_type()).view(x.sizes());
}

// No other tensor shares the memory of these.
bool hold_alone(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& one : tensors) {
    const auto shares = [&](const at::Tensor& other) {
      return other.storage().unsafeGetStorageImpl() == one.storage().unsafeGetStorageImpl();
    };
    const auto sharers = static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(), shares));
    if (one.use_count() != 1 || one.storage().use_count() != sharers) return false;
  }
  return true;
}

struct RotaryNode final : LayerNode {
  RotaryNode() : LayerNode("RotaryBackward") {}
  Saved cos, sin;

  // The transpose of the rotation is the inverse rotation.
  Gradients backward(Gradients&& gradients) override {
    Gradients out(2);
    const RotaryAngles angles{cos.unpack(), sin.unpack()};
    for (size_t i : {0, 1}) {
      at::Tensor& gradient = gradients[i];
      if (!gradient.defined()) continue;
      if (has_row_kernel(gradient) && hold_alone({&gradient, 1}))
        rotate_cpu(out[i] = std::move(gradient), angles, -1.0);
      else
        out[i] = turn(gradient, angles, -1.0);
    }
    return out;
  }
  void release_variables() override {
    cos.reset();
    sin.reset();
  }
};

}  // namespace

namespace {

std::pair<at::Tensor, at::Tensor> record(const at::Tensor& q, const at::Tensor& k, const RotaryAngles& angles,
                                         std::pair<at::Tensor, at::Tensor> turned) {
  if (!torch::autograd::compute_requires_grad(q, k)) return turned;
  auto node = make_node<RotaryNode>(q, k);
  node->cos.save(angles.cos);
  node->sin.save(angles.sin);
  torch::autograd::set_history(turned.first, node);
  torch::autograd::set_history(turned.second, node);
  return turned;
}

}  // namespace

std::pair<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                         const RotaryAngles& angles) {
  std::pair<at::Tensor, at::Tensor> turned;
  {
    const BelowAutograd below;
    turned = {turn(q, angles, 1.0), turn(k, angles, 1.0)};
  }
  return record(q, k, angles, std::move(turned));
}

void rotate_owned(std::span<at::Tensor, 3> qkv, const RotaryAngles& angles) {
  at::Tensor &q = qkv[0], &k = qkv[1];
  const bool here = has_row_kernel(q) && has_row_kernel(k) && hold_alone(qkv);
  auto turned = here ? std::pair(q.variable_data(), k.variable_data()) : rotate(q, k, angles);
  if (here) {
    rotate_cpu(turned.first, angles, 1.0);
    rotate_cpu(turned.second, angles, 1.0);
    turned = record(q, k, angles, std::move(turned));
  }
  std::tie(q, k) = std::move(turned);
}

}  // namespace model

namespace {

at::Tensor scaled(const at::Tensor& plain, const RotaryScaling& scaling) {
  if (scaling.kind == RotaryScaling::Kind::none) return plain;
  if (scaling.kind == RotaryScaling::Kind::linear) return plain / scaling.factor;
  const double positions = static_cast<double>(scaling.original_positions);
  const double longest = positions / scaling.low_freq_factor, shortest = positions / scaling.high_freq_factor;
  const at::Tensor wavelength = plain.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor slow = plain / scaling.factor;
  const at::Tensor smooth = (wavelength.reciprocal() * positions - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - smooth) * slow + smooth * plain;
  const at::Tensor ends = at::where(wavelength > longest, slow, plain);
  return at::where((wavelength <= longest).logical_and(wavelength >= shortest), between, ends);
}

}  // namespace

Rotary::Rotary(int64_t head_dim, double theta, const RotaryScaling& scaling) {
  at::NoGradGuard no_grad;
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  frequencies_ = scaled(at::pow(theta, exponents).reciprocal(), scaling);
}

const model::RotaryAngles& Rotary::angles(const Batch& batch) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  const at::Tensor& source = batch.positions.defined() ? batch.positions : batch.documents;
  const uint32_t version = source.defined() ? source._version() : 0;
  if (kept_.cos.defined() && source_.is_same(source) && version_ == version && rows == batch_ &&
      length == length_ && kept_.cos.device() == batch.tokens.device())
    return kept_;
  at::NoGradGuard no_grad;
  const at::Tensor turns = positions_of(batch).reshape({-1}).to(at::kFloat).unsqueeze(1) *
                           frequencies_.to(batch.tokens.device()).unsqueeze(0);
  kept_ = {turns.cos(), turns.sin()};
  source_ = source;
  version_ = version;
  batch_ = rows;
  length_ = length;
  return kept_;
}

}  // namespace heddle
