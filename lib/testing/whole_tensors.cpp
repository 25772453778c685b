// Assembly of whole tensors: counts elements and compares replicas.
#include "lib/testing/whole_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "heddle/base/error.h"

namespace heddle::kits {
namespace {

// The replica of this rank, and how many ranks hold each number: the position along all axes that neither
// split the shard nor hold other parameters.
int replica_of(const DeviceMesh& mesh, const Shard& shard) {
  std::vector<std::string> splits = mesh.parts_of(shard.axes), others;
  splits.emplace_back(kPipelineAxis);
  for (const Axis& axis : mesh.axes(mesh.view_of(shard.axes)))
    if (std::find(splits.begin(), splits.end(), axis.name) == splits.end()) others.push_back(axis.name);
  std::string joined;
  for (const std::string& axis : others) joined += (joined.empty() ? "" : "+") + axis;
  return mesh.rank(joined);
}

// "[2, 3]" of the first element that is not 1 in `counts`.
std::string first_wrong_index(const at::Tensor& counts) {
  const at::Tensor where = at::nonzero(at::ne(counts, 1))[0];
  std::string out;
  for (int64_t dim = 0; dim < where.numel(); ++dim)
    out += (out.empty() ? "" : ", ") + std::to_string(where[dim].item<int64_t>());
  return "[" + out + "]";
}

}  // namespace

void found(const std::string& fault) {
  throw Error(ErrorCode::plugin_failed, "", fault);
}

std::string written(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", number);
  return text;
}

at::Tensor box_of(const Shard& shard, at::Tensor whole) {
  if (shard.offset.size() != shard.shape.size() ||
      shard.tensor.dim() != static_cast<int64_t>(shard.shape.size()))
    found("a shard of '" + shard.name + "' has another number of dims than the parameter");
  for (size_t i = 0; i < shard.shape.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    const int64_t size = shard.tensor.size(dim), end = shard.offset[i] + size;
    if (shard.offset[i] < 0 || end > shard.shape[i])
      found("a shard of '" + shard.name + "' ends at " + std::to_string(end) + " along dim " +
            std::to_string(i) + ", and the parameter has " + std::to_string(shard.shape[i]));
    whole = whole.narrow(dim, shard.offset[i], size);
  }
  return whole;
}

void WholeTensors::add(const DeviceMesh& mesh, const Shard& shard, const at::Tensor& numbers) {
  const at::NoGradGuard no_gradients;
  int replica = replica_of(mesh, shard);
  if (shard.tied_to_earlier) replica = -1 - replica;  // of the last stage: equal to the first one's
  const at::Tensor here = numbers.to(at::kCPU);
  const std::lock_guard lock(mutex_);
  if (!shard.differs.empty()) differing_.insert(shard.name);
  Pieces& pieces = pieces_[{shard.name, replica}];
  if (!pieces.values.defined()) {
    pieces.values = at::zeros(shard.shape, here.options().requires_grad(false));
    pieces.counts = at::zeros(shard.shape, at::kInt);
  }
  if (!pieces.values.sizes().equals(shard.shape))
    found("two shards of '" + shard.name + "' say that it has different shapes");
  box_of(shard, pieces.counts).add_(1);
  box_of(shard, pieces.values).copy_(here);
}

Named WholeTensors::take(const std::string& subject) const {
  Named out;
  for (const auto& [key, pieces] : pieces_) {
    const std::string name = subject + " '" + key.first + "'";
    const auto least = pieces.counts.numel() == 0 ? 1 : pieces.counts.min().item<int64_t>();
    const auto most = pieces.counts.numel() == 0 ? 1 : pieces.counts.max().item<int64_t>();
    if (least < 1) found(name + ": the element " + first_wrong_index(pieces.counts) + " is on no rank");
    if (most > 1)
      found(name + ": the element " + first_wrong_index(pieces.counts) + " is there " + std::to_string(most) +
            " times");
    const auto first = out.emplace(key.first, pieces.values).first;
    // Not to the bit: rounding in kernels may depend on the alignment of a buffer.
    const at::Tensor& one = first->second;
    if (one.numel() == 0 || differing_.count(key.first) != 0) continue;
    const double limit = 1e-4 * one.nan_to_num(0, 0, 0).abs().max().item<double>();
    if (!at::allclose(one, pieces.values, 0, limit, /*equal_nan=*/true))
      found(name + ": ranks that should hold the same numbers hold different ones");
  }
  for (const std::string& name : differing_) {
    at::Tensor sum;
    int64_t count = 0;
    for (auto piece = pieces_.lower_bound({name, std::numeric_limits<int>::min()});
         piece != pieces_.end() && piece->first.first == name; ++piece, ++count)
      sum = sum.defined() ? sum + piece->second.values : piece->second.values;
    out[name] = sum / count;
  }
  return out;
}

}  // namespace heddle::kits
