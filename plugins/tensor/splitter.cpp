// Split of parameters. Slots are found by the address of the tensor that the model computes with.
#include "splitter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace heddle::tensor {
namespace {

// On meta returns only a shape. Otherwise returns a copy, so that the whole tensor is freed.
at::Tensor piece(const at::Tensor& whole, int64_t dim, const Part& part) {
  at::NoGradGuard no_gradients;
  return whole.detach().narrow(dim, part.begin, part.count).clone(at::MemoryFormat::Contiguous);
}

}  // namespace

Splitter::Splitter(Units& units, const DeviceMesh& mesh) : ranks_(mesh.size("tp")), rank_(mesh.rank("tp")) {
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) slots_.push_back(std::move(slot));
  for (size_t i = 0; i < slots_.size(); ++i) places_[slots_[i].tensor] = i;
}

ParameterSlot& Splitter::slot_of(at::Tensor& tensor) {
  return slots_[places_.at(&tensor)];
}

Part Splitter::split(at::Tensor& tensor, int64_t dim) {
  ParameterSlot& slot = slot_of(tensor);
  if (const auto cut = cuts_.find(slot.name); cut != cuts_.end()) {
    if (cut->second.dim != dim)
      throw Error(
          ErrorCode::config, "distributed.tp_plan",
          "the tied parameter '" + slot.name + "' is split in two ways",
          "split the vocabulary of the embedding and of the head in the same way: rowwise_rep and colwise");
    slot.point(cut->second.part);
    return cut->second.place;
  }
  const int64_t whole = tensor.size(dim);
  if (whole < ranks_)
    throw Error(ErrorCode::input, "tensor",
                "the parameter '" + slot.name + "' has " + std::to_string(whole) + " elements along dim " +
                    std::to_string(dim) + ", fewer than the " + std::to_string(ranks_) + " ranks of tp",
                "set a smaller tp_size, or remove it from the plan");
  const Part part = part_of(whole, ranks_, rank_);
  const at::Tensor leaf = slot.point(piece(tensor, dim, part));
  cuts_.emplace(slot.name, Cut{leaf, dim, whole, part});
  placed_.push_back({slot.name, "tp", dim, part.begin, whole});
  return part;
}

void Splitter::sum_gradient(at::Tensor& tensor) {
  Placed partial;
  partial.parameter = slot_of(tensor).name;
  partial.axis = "tp";
  partial.kind = Placed::Kind::partial_gradient;
  placed_.push_back(std::move(partial));
}

std::vector<Placed> Splitter::finish() {
  for (const ParameterSlot& slot : slots_) {
    const auto cut = cuts_.find(slot.name);
    if (cut == cuts_.end() || slot.tensor->is_same(cut->second.part)) continue;
    throw Error(ErrorCode::config, "distributed.tp_plan",
                "the parameter '" + slot.name + "' is tied, but the plan splits only one of its places",
                "give the embedding the style rowwise_rep and the head the style colwise");
  }
  return std::move(placed_);
}

}  // namespace heddle::tensor
