// The kept table of angles, and the rotation of q and k as one node.
#include "heddle/nn/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/row_kernels.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle {
namespace model {
namespace {

// Returns the kernel that turns in place; on meta the one that records its cost, as the CPU turns in one
// pass.
auto rotate_kernel(const at::Tensor& x) {
  return x.is_meta() ? recorded_kernels().rotate : device_kernel(&DeviceOps::rotate, x);
}

// Whether a kernel has turned x in place.
bool turn_here(const at::Tensor& x, const RotaryAngles& angles, double direction) {
  if (has_row_kernel(x)) {
    rotate_cpu(x, angles, direction);
    return true;
  }
  const auto kernel = rotate_kernel(x);
  return kernel != nullptr && kernel(x, angles, direction);
}

at::Tensor turn(const at::Tensor& x, const RotaryAngles& angles, double direction) {
  if (has_row_kernel(x) || rotate_kernel(x) != nullptr) {
    at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
    if (turn_here(y, angles, direction)) return y;
  }
  const HeadPart& part = angles.part;
  const int64_t half = angles.cos.size(1), dim = 2 * half, head = part.head_dim > 0 ? part.head_dim : dim;
  const at::Tensor heads = x.reshape({x.size(0), x.size(-1) / head, head});
  const at::Tensor turned = heads.narrow(2, part.first, dim);
  const at::Tensor pairs = part.interleaved ? turned.unflatten(2, {half, 2}) : turned.unflatten(2, {2, half});
  const int64_t across = part.interleaved ? 3 : 2;
  const at::Tensor a = pairs.select(across, 0), b = pairs.select(across, 1);
  const at::Tensor c = angles.cos.unsqueeze(1), s = (angles.sin * direction).unsqueeze(1);
  at::Tensor y = at::stack({a * c - b * s, b * c + a * s}, across).flatten(2).to(x.scalar_type());
  if (dim < head)
    y = at::cat(
        {heads.narrow(2, 0, part.first), y, heads.narrow(2, part.first + dim, head - part.first - dim)}, 2);
  return y.view(x.sizes());
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
  HeadPart part;

  // The transpose of a rotation, whose factor stays, is the rotation back.
  Gradients backward(Gradients&& gradients) override {
    Gradients out(gradients.size());
    const RotaryAngles angles{cos.unpack(), sin.unpack(), part};
    for (size_t i = 0; i < gradients.size(); ++i) {
      at::Tensor& gradient = gradients[i];
      if (!gradient.defined()) continue;
      if (hold_alone({&gradient, 1}) && turn_here(gradient, angles, -1.0))
        out[i] = std::move(gradient);
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

// Null: no gradient is needed.
template <class... Inputs>
std::shared_ptr<RotaryNode> node_for(const RotaryAngles& angles, const Inputs&... inputs) {
  if (!torch::autograd::compute_requires_grad(inputs...)) return nullptr;
  auto node = make_node<RotaryNode>(inputs...);
  node->cos.save(angles.cos);
  node->sin.save(angles.sin);
  node->part = angles.part;
  return node;
}

std::pair<at::Tensor, at::Tensor> record(const at::Tensor& q, const at::Tensor& k, const RotaryAngles& angles,
                                         std::pair<at::Tensor, at::Tensor> turned) {
  if (const auto node = node_for(angles, q, k)) {
    torch::autograd::set_history(turned.first, node);
    torch::autograd::set_history(turned.second, node);
  }
  return turned;
}

}  // namespace

at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles) {
  at::Tensor turned;
  {
    const BelowAutograd below;
    turned = turn(x, angles, 1.0);
  }
  if (const auto node = node_for(angles, x)) torch::autograd::set_history(turned, node);
  return turned;
}

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
  const bool alone = hold_alone(qkv);
  std::pair<at::Tensor, at::Tensor> turned;
  {
    const BelowAutograd below;
    const auto turn_one = [&](const at::Tensor& x) {
      at::Tensor data = x.variable_data();
      return alone && turn_here(data, angles, 1.0) ? data : turn(x, angles, 1.0);
    };
    turned = {turn_one(q), turn_one(k)};
  }
  std::tie(q, k) = record(q, k, angles, std::move(turned));
}

}  // namespace model

Rotary::Rotary(int64_t head_dim, double theta, const RotaryScaling& scaling, int64_t rotary_dim)
    : factor_(model::rotary_factor(scaling)) {
  const int64_t dim = rotary_dim > 0 ? rotary_dim : head_dim;
  if (dim != head_dim) part_.head_dim = head_dim;
  frequencies_ = model::rotary_frequencies(dim, theta, scaling);
}

Rotary::Rotary(const at::Tensor& frequencies, double factor, const model::HeadPart& part)
    : factor_(factor), part_(part) {
  if (!frequencies.defined() || frequencies.dim() != 1 || frequencies.numel() == 0 ||
      !frequencies.is_floating_point())
    throw Error(ErrorCode::input, "Rotary", "the frequencies are no vector of real numbers",
                "give one for each pair of rotated numbers, [rotated numbers / 2]");
  const int64_t turned = 2 * frequencies.numel();
  if (part.first < 0 || (part.head_dim > 0 ? part.first + turned > part.head_dim : part.first != 0))
    throw Error(ErrorCode::input, "Rotary",
                std::to_string(turned) + " rotated numbers from " + std::to_string(part.first) +
                    " on are not within a head of " + std::to_string(part.head_dim),
                "give fewer frequencies, or the head_dim that holds them");
  const at::NoGradGuard no_gradients;
  frequencies_ = frequencies.detach().to(at::kCPU, at::kFloat).clone();
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
                           frequencies_.to(batch.tokens.device(), /*non_blocking=*/true).unsqueeze(0);
  kept_ = {turns.cos(), turns.sin(), part_};
  if (factor_ != 1) {
    kept_.cos.mul_(factor_);
    kept_.sin.mul_(factor_);
  }
  source_ = source;
  version_ = version;
  batch_ = rows;
  length_ = length;
  return kept_;
}

}  // namespace heddle
