// Squares are summed in fp64 block by block, so the result does not depend on the number of threads.
#include "heddle/train/norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "heddle/train/squares_cpu.h"

namespace heddle::train {
namespace {

constexpr int64_t kBlock = 1 << 15;

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  if (count == 0) return 0;
  if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
    const double norm =
        at::linalg_vector_norm(tensor.detach(), 2, std::nullopt, false, at::kDouble).item<double>();
    return norm * norm;
  }
  const float* values = tensor.const_data_ptr<float>();
  if (count <= kBlock) return squares_cpu(values, count);
  std::vector<double> blocks((count + kBlock - 1) / kBlock);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      blocks[block] = squares_cpu(values + block * kBlock, std::min(kBlock, count - block * kBlock));
  });
  double sum = 0;
  for (const double block : blocks) sum += block;
  return sum;
}

at::Tensor sum_of_squares_on_device(at::TensorList tensors) {
  const std::vector<at::Tensor> norms = at::_foreach_norm(tensors, 2, at::kDouble);
  return at::stack(norms).square_().sum().view({1});
}

GradientNorm::GradientNorm(std::span<Shard* const> shards, const DeviceMesh& mesh) : device_(mesh.device()) {
  for (Shard* shard : shards) {
    auto group =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.axes == shard->axes; });
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(), Group{shard->axes, {}, {}});
      for (const std::string& axis : shard->axes)
        if (mesh.size(axis) > 1) group->reduces.push_back(&mesh.group(axis));
    }
    group->shards.push_back(shard);
  }
  if (mesh.size("pp") > 1) pipeline_ = &mesh.group("pp");
}

at::Tensor GradientNorm::squares_of(const Group& group) const {
  const at::Tensor none = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
  std::vector<at::Tensor> there;
  double squares = 0;
  for (const Shard* shard : group.shards) {
    const at::Tensor& gradient = shard->tensor.grad();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    if (gradient.is_cpu())
      squares += sum_of_squares(gradient);
    else
      there.push_back(gradient);
  }
  return there.empty() ? none.fill_(squares) : sum_of_squares_on_device(there).add_(squares);
}

at::Tensor GradientNorm::measure() const {
  at::NoGradGuard no_gradients;
  at::Tensor total = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
  for (const Group& group : groups_) {
    const at::Tensor sum = squares_of(group);
    for (Communicator* axis : group.reduces) axis->all_reduce(sum)->wait();
    total += sum;
  }
  if (pipeline_ != nullptr) pipeline_->all_reduce(total)->wait();
  return total.sqrt_();
}

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  return at::clamp_min((norm + 1e-6) / max_norm, 1.0).to(at::kFloat);
}

}  // namespace heddle::train
