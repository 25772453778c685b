// Squares are summed in fp64 block by block, so the result does not depend on the number of threads.
#include "lib/train/optimizer/norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "heddle/parallel/reduction.h"
#include "lib/train/optimizer/squares_cpu.h"

namespace heddle::train {
namespace {

constexpr int64_t kBlock = 1 << 15;

// The sum of part(numbers, count) over blocks of a contiguous tensor, one block after another.
template <class Number, class Part>
double sum_of_blocks(const at::Tensor& tensor, const Part& part) {
  const int64_t count = tensor.numel();
  const Number* numbers = tensor.const_data_ptr<Number>();
  if (count <= kBlock) return part(numbers, count);
  std::vector<double> blocks((count + kBlock - 1) / kBlock);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      blocks[block] = part(numbers + block * kBlock, std::min(kBlock, count - block * kBlock));
  });
  double sum = 0;
  for (const double block : blocks) sum += block;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  if (!tensor.is_cpu()) {
    const double norm =
        at::linalg_vector_norm(tensor.detach(), 2, std::nullopt, false, at::kDouble).item<double>();
    return norm * norm;
  }
  const at::Tensor values = tensor.detach().contiguous();
  return AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, values.scalar_type(), "sum_of_squares",
      [&] { return sum_of_blocks<scalar_t>(values, squares_cpu<scalar_t>); });
}

namespace {

double sum_of_powers(const at::Tensor& tensor, double scale, double power) {
  return sum_of_blocks<double>(
      tensor, [=](const double* from, int64_t count) { return powers_cpu(from, count, scale, power); });
}

}  // namespace

at::Tensor sum_of_squares_on_device(at::TensorList tensors) {
  const std::vector<at::Tensor> norms = at::_foreach_norm(tensors, 2, at::kDouble);
  return at::stack(norms).square_().sum().view({1});
}

GradientNorm::GradientNorm(std::span<Shard* const> shards, const DeviceMesh& mesh, double norm_type)
    : device_(mesh.device()), norm_type_(norm_type), fits_(true) {
  for (Shard* shard : shards) {
    if (shard->tied_to_earlier) continue;
    fits_ = fits_ && shard->tensor.scalar_type() != at::kDouble;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.axes == shard->axes && g.differs == shard->differs;
    });
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(), Group{shard->axes, shard->differs, {}, {}, {}});
      check_axes(*shard, shard->axes, mesh);
      check_axes(*shard, shard->differs, mesh);
      for (const std::string& axis : shard->axes)
        if (mesh.size(axis) > 1) group->reduces.push_back(&mesh.group(axis));
      for (const std::string& axis : shard->differs)
        if (mesh.size(axis) > 1) group->means.push_back(&mesh.group(axis));
    }
    group->shards.push_back(shard);
  }
  std::sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
    return std::tie(a.axes, a.differs) < std::tie(b.axes, b.differs);
  });
  if (mesh.size(kPipelineAxis) > 1) pipeline_ = &mesh.group(kPipelineAxis);
  crosses_ = groups_.size() > 1 && std::any_of(groups_.begin(), groups_.end(), [](const Group& group) {
               return !group.reduces.empty() || !group.means.empty();
             });
  agree(mesh);
}

// A rank may have none of the parameters whose squares need more than fp64.
void GradientNorm::agree(const DeviceMesh& mesh) {
  if (mesh.size(kWorldAxis) == 1) return;
  const at::Tensor others = at::zeros({1}, at::kDouble).fill_(fits_ ? 0 : 1);
  mesh.group(kWorldAxis).all_reduce(others, Reduce::max)->wait();
  fits_ = others.item<double>() == 0;
}

namespace {

at::TensorOptions double_on(c10::Device device) {
  return at::TensorOptions(at::kDouble).device(device);
}

std::vector<at::Tensor> gradients_of(const std::vector<Shard*>& shards) {
  std::vector<at::Tensor> out;
  for (const Shard* shard : shards)
    if (const at::Tensor& gradient = shard->tensor.grad(); gradient.defined() && gradient.numel() > 0)
      out.push_back(gradient);
  return out;
}

}  // namespace

at::Tensor GradientNorm::squares_of(const Group& group) const {
  const at::Tensor none = at::zeros({1}, double_on(device_));
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

at::Tensor GradientNorm::measure(at::Tensor* doubts) const {
  at::NoGradGuard no_gradients;
  if (std::isinf(norm_type_)) return largest(doubts);
  return is_a_sum() ? euclidean(doubts) : scaled(doubts);
}

namespace {

at::Tensor joined(Reduce reduce, const std::vector<at::Tensor>& parts) {
  at::Tensor total;
  for (const at::Tensor& part : parts)
    total = !total.defined() ? part : reduce == Reduce::max ? at::maximum(total, part) : total + part;
  return total;
}

// An inf or nan in one group is added to the parts of all groups: it then reaches every rank over the axes of
// any group, even if only one of the ranks with a replicated gradient has it.
void spread_what_is_not_finite(Reduce reduce, const std::vector<at::Tensor>& parts) {
  const at::Tensor all = joined(reduce, parts), finite = (all - all).eq(0);
  for (const at::Tensor& part : parts)
    if (reduce == Reduce::max)
      part.copy_(at::maximum(part, all));
    else
      part.add_(all.masked_fill(finite, 0));
}

}  // namespace

// One number or a few of each group, reduced over the axes that split it, then over groups.
at::Tensor GradientNorm::over_axes(Reduce reduce, const Part& of_group) const {
  std::vector<at::Tensor> parts;
  for (const Group& group : groups_) parts.push_back(of_group(group));
  if (crosses_) spread_what_is_not_finite(reduce, parts);
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (Communicator* axis : groups_[i].reduces) axis->all_reduce(parts[i], reduce)->wait();
    const Reduce mean = reduce == Reduce::sum ? Reduce::average : reduce;
    for (Communicator* axis : groups_[i].means) axis->all_reduce(parts[i], mean)->wait();
  }
  at::Tensor total = joined(reduce, parts);
  if (!total.defined()) total = at::zeros({reduce == Reduce::max ? 2 : 1}, double_on(device_));
  return total;
}

at::Tensor GradientNorm::over_ranks(Reduce reduce, const Part& of_group, at::Tensor* doubts) const {
  const auto with_doubts = [&](const Group& group) { return at::cat({of_group(group), *doubts}); };
  at::Tensor total = over_axes(reduce, doubts == nullptr ? of_group : Part(with_doubts));
  if (doubts != nullptr && groups_.empty()) total = at::cat({total, *doubts});
  if (pipeline_ != nullptr) pipeline_->all_reduce(total, reduce)->wait();
  if (doubts == nullptr) return total;
  *doubts = total.narrow(0, total.numel() - 1, 1);
  return total.narrow(0, 0, total.numel() - 1);
}

at::Tensor GradientNorm::squares_of_stages() const {
  at::NoGradGuard no_gradients;
  return over_axes(Reduce::sum, [this](const Group& group) { return squares_of(group); });
}

at::Tensor GradientNorm::euclidean(at::Tensor* doubts) const {
  return over_ranks(
             Reduce::sum, [this](const Group& group) { return squares_of(group); }, doubts)
      .sqrt_();
}

// The largest number of each rank, and whether it has a nan: a maximum over ranks may drop a nan.
at::Tensor GradientNorm::largest(at::Tensor* doubts) const {
  const auto of_group = [this](const Group& group) {
    at::Tensor most = at::zeros({1}, double_on(device_));
    for (const at::Tensor& gradient : gradients_of(group.shards))
      most = at::maximum(most, gradient.abs().max().to(device_, at::kDouble));
    const at::Tensor nan = most.isnan();
    return at::cat({most.masked_fill(nan, 0), nan.to(at::kDouble)});
  };
  const at::Tensor both = over_ranks(Reduce::max, of_group, doubts);
  return both.narrow(0, 0, 1).masked_fill(both.narrow(0, 1, 1).gt(0), std::nan(""));
}

// The largest number times the norm of the scaled numbers (as in LAPACK's and PyTorch's robust norms).
at::Tensor GradientNorm::scaled(at::Tensor* doubts) const {
  const at::Tensor most = largest(doubts);
  const at::Tensor usable = most.isfinite().logical_and_(most.gt(0));
  const at::Tensor scale = at::where(usable, most, 1.0);
  const at::Tensor sum = over_ranks(Reduce::sum, [&](const Group& group) {
    at::Tensor part = at::zeros({1}, double_on(device_));
    for (const at::Tensor& gradient : gradients_of(group.shards)) {
      const at::Tensor wide = gradient.to(device_, at::kDouble).contiguous();
      part += wide.is_cpu() ? at::full_like(part, sum_of_powers(wide, scale.item<double>(), norm_type_))
                            : (wide.abs() / scale).pow_(norm_type_).sum();
    }
    return part;
  });
  const at::Tensor root =
      sum.is_cpu() ? sum.fill_(std::pow(sum.item<double>(), 1.0 / norm_type_)) : sum.pow_(1.0 / norm_type_);
  return root.mul_(scale);
}

at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  return at::clamp_min((norm + 1e-6) / max_norm, 1.0).to(at::kFloat);
}

void clip_gradients(std::span<Shard* const> shards, const at::Tensor& norm, double max_norm) {
  const at::NoGradGuard no_gradients;
  const at::Tensor divisor = clip_divisor(norm, max_norm);
  for (Shard* shard : shards)
    if (at::Tensor& gradient = shard->tensor.mutable_grad(); gradient.defined())
      gradient.div_(divisor.to(gradient.device()));
}

double largest_norm(std::optional<double> max_norm) {
  constexpr double most = std::numeric_limits<float>::max();
  const double square_root = std::sqrt(most);
  return max_norm ? std::min(square_root, *max_norm * most) : square_root;
}

at::Tensor skip_above(const at::Tensor& norm, double largest, const at::Tensor& doubts) {
  at::Tensor fits = norm.le(largest).to(at::kFloat);  // nan is not
  if (doubts.defined()) fits.mul_(doubts.eq(0).to(at::kFloat));
  return fits.neg_().add_(1);
}

at::Tensor nonfinite_flag(const at::Tensor& loss) {
  return (loss - loss).ne(0).to(at::kDouble);
}

}  // namespace heddle::train
