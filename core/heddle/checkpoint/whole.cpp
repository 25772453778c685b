// Whole parameters: the ranks say once what they hold, then send box after box to rank 0.
#include "heddle/checkpoint/whole.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/dtype_names.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

Box box_of(const Shard& shard) {
  return {shard.offset, shard.tensor.sizes().vec()};
}

std::string describe(Stages& stages) {
  json out = json::array();
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned())
      out.push_back({shard.name, name_of_dtype(shard.tensor.scalar_type()), shard.shape, shard.offset,
                     shard.tensor.sizes().vec()});
  return out.dump();
}

at::Tensor corner(const at::Tensor& whole, const Box& box) {
  at::Tensor view = whole;
  for (size_t dim = 0; dim < box.size.size(); ++dim)
    view = view.narrow(static_cast<int64_t>(dim), box.offset[dim], box.size[dim]);
  return view;
}

}  // namespace

WholeParameters::WholeParameters(Stages& stages, const DeviceMesh& mesh, const std::string& key)
    : world_(&mesh.group("world")) {
  const std::vector<std::string> ranks = mesh.meeting().exchange("whole/" + key, describe(stages));
  for (size_t rank = 0; rank < ranks.size(); ++rank) read_rank(static_cast<int>(rank), ranks[rank]);
  own_.resize(tensors_.size());
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned()) {
      const auto same = [&](const TensorToWrite& tensor) { return tensor.name == shard.name; };
      const auto found = std::find_if(tensors_.begin(), tensors_.end(), same);
      own_[static_cast<size_t>(found - tensors_.begin())].emplace_back(box_of(shard), shard.tensor);
    }
  for (size_t index = 0; index < tensors_.size(); ++index) check_cover(index);
}

void WholeParameters::read_rank(int rank, const std::string& lines) {
  std::map<std::string, size_t> index_of;
  for (size_t i = 0; i < tensors_.size(); ++i) index_of.emplace(tensors_[i].name, i);
  for (const json& line : json::parse(lines)) {
    const auto name = line[0].get<std::string>();
    const auto [found, is_new] = index_of.emplace(name, tensors_.size());
    if (is_new) {
      const auto dtype = dtype_named(line[1].get<std::string>());
      tensors_.push_back({name, dtype.value_or(at::kFloat), line[2].get<std::vector<int64_t>>()});
      parts_.emplace_back();
    }
    const Box box{line[3].get<std::vector<int64_t>>(), line[4].get<std::vector<int64_t>>()};
    std::vector<Part>& parts = parts_[found->second];
    const bool known =
        std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.box == box; });
    if (!known && box.numel() > 0) parts.push_back({rank, box});
  }
}

void WholeParameters::check_cover(size_t index) const {
  const TensorToWrite& tensor = tensors_[index];
  int64_t covered = 0;
  for (const Part& part : parts_[index]) {
    if (!fits(part.box, tensor.shape))
      throw Error(
          ErrorCode::internal, "checkpoint",
          "a shard of " + text::quoted(tensor.name) + " lies outside its shape " + written(tensor.shape));
    covered += part.box.numel();
  }
  const int64_t whole = Box{tensor.shape, tensor.shape}.numel();
  if (covered != whole)
    throw Error(ErrorCode::internal, "checkpoint",
                "the shards of " + text::quoted(tensor.name) + " hold " + std::to_string(covered) +
                    " numbers, the whole has " + std::to_string(whole));
}

const at::Tensor& WholeParameters::own(size_t index, const Box& box) const {
  for (const auto& [mine, tensor] : own_[index])
    if (mine == box) return tensor;
  throw Error(ErrorCode::internal, "checkpoint",
              "a shard of " + text::quoted(tensors_[index].name) + " is no longer where it was");
}

at::Tensor WholeParameters::gather(size_t index) {
  const TensorToWrite& declared = tensors_[index];
  const int tag = static_cast<int>(index);
  at::Tensor whole;
  if (world_->rank() == 0) whole = at::empty(declared.shape, at::TensorOptions(declared.dtype));
  for (const Part& part : parts_[index]) {
    if (part.rank == world_->rank()) {
      const at::Tensor mine = own(index, part.box).detach().to(at::kCPU);  // files are written from there
      if (whole.defined())
        corner(whole, part.box).copy_(mine);
      else
        world_->send(mine.contiguous(), 0, tag)->wait();
    } else if (whole.defined()) {
      at::Tensor received = at::empty(part.box.size, at::TensorOptions(declared.dtype));
      world_->receive(received, part.rank, tag)->wait();
      corner(whole, part.box).copy_(received);
    }
  }
  return whole;
}

}  // namespace heddle::checkpoint
