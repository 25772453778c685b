// The ranks tell each other their boxes once; then every transfer is known.
#include "core/parallel/built/tied_copies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/dry.h"

namespace heddle::parallel {
namespace {

constexpr const char* kNone = "-";  // this rank holds no copy
constexpr const char* kUnsplit = "whole";

// The axes that split the copies of this rank.
std::string axes_text(const std::string& name, Stages& stages, const DeviceMesh& mesh) {
  for (const Shard* shard : stages.shards()) {
    if (shard->name != name) continue;
    std::vector<std::string> axes;
    for (const std::string& axis : shard->axes)
      if (mesh.size(axis) > 1) axes.push_back(axis);
    std::sort(axes.begin(), axes.end());
    return axes.empty() ? kUnsplit : text::join(axes, "+");
  }
  return kNone;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// On rank 0: the axes of each parameter, a line each.
std::vector<std::string> agreed_axes(const std::vector<TiedParameter>& tied,
                                     std::span<const std::string> ranks) {
  std::vector<std::string> agreed(tied.size(), kNone);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<std::string> lines = lines_of(ranks[rank]);
    for (size_t i = 0; i < tied.size(); ++i) {
      if (lines[i] == kNone || lines[i] == agreed[i]) continue;
      if (agreed[i] != kNone)
        throw Error(ErrorCode::plugin_failed, "parallel",
                    "the tied parameter '" + tied[i].name + "' is split along '" + agreed[i] +
                        "' on one stage and along '" + lines[i] + "' on rank " + std::to_string(rank),
                    "a parallelizer and a strategy split a tied parameter alike on each of its stages");
      agreed[i] = lines[i];
    }
  }
  return {text::join(agreed, "\n")};
}

std::vector<std::string> agree_on_axes(const std::vector<TiedParameter>& tied, Stages& stages,
                                       const DeviceMesh& mesh) {
  std::vector<std::string> own;
  for (const TiedParameter& one : tied) own.push_back(axes_text(one.name, stages, mesh));
  const auto answer = [&](std::span<const std::string> ranks) { return agreed_axes(tied, ranks); };
  std::vector<std::string> all =
      lines_of(mesh.rendezvous().meet("axes of tied parameters", text::join(own, "\n"), answer));
  for (std::string& axes : all)
    axes = std::string(kPipelineAxis) + (axes == kNone || axes == kUnsplit ? "" : "+" + axes);
  return all;
}

at::Tensor box_of(const at::Tensor& of_shard, const std::vector<int64_t>& start,
                  const std::vector<int64_t>& offset, const std::vector<int64_t>& size) {
  at::Tensor box = of_shard;
  for (size_t dim = 0; dim < size.size(); ++dim)
    box = box.narrow(static_cast<int64_t>(dim), offset[dim] - start[dim], size[dim]);
  return box;
}

}  // namespace

TiedCopies::TiedCopies(const std::vector<TiedParameter>& tied, Stages& stages, const DeviceMesh& mesh) {
  const std::vector<std::string> axes = agree_on_axes(tied, stages, mesh);
  for (size_t i = 0; i < tied.size(); ++i) {
    Copies& copies = copies_.emplace_back();
    copies.ranks = &mesh.group(axes[i]);
    copies.first = tied[i].stages.front();
    copies.stages = tied[i].stages.size();
    copies.has_values = tied[i].has_values;
    copies.trains = tied[i].trains;
    copies.holdings = all_holdings(tied[i], stages, mesh, *copies.ranks, axes[i]);
    for (Holding& holding : copies.holdings)
      if (holding.shard != nullptr) holding.shard->tied_to_earlier = holding.stage != copies.first;
    plan(copies);
  }
}

std::vector<TiedCopies::Holding> TiedCopies::own_holdings(const TiedParameter& parameter, Stages& stages,
                                                          int rank) {
  std::vector<Holding> own;
  for (size_t local = 0; local < stages.size(); ++local)
    for (Shard& shard : stages[local]->owned())
      if (shard.name == parameter.name)
        own.push_back({rank, stages.indices()[local], shard.offset, shard.tensor.sizes().vec(), &shard});
  return own;
}

// In a dry world the other stages' shards are taken to be cut as this rank's.
std::vector<TiedCopies::Holding> TiedCopies::assumed_holdings(const TiedParameter& parameter,
                                                              std::vector<Holding> own, const Stages& stages,
                                                              const DeviceMesh& mesh,
                                                              const std::string& axes) {
  const std::vector<int> members = mesh.ranks(axes), pipeline = mesh.ranks(kPipelineAxis);
  std::vector<Holding> all = own;
  for (const int stage : parameter.stages) {
    const int global =
        pipeline[static_cast<size_t>(stages.pipeline().rank_of_stage[static_cast<size_t>(stage)])];
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), global) - members.begin());
    for (const Holding& holding : own)
      if (holding.rank != rank && holding.stage != stage)
        all.push_back({rank, stage, holding.offset, holding.size, nullptr});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Holding& a, const Holding& b) { return a.rank < b.rank; });
  return all;
}

std::vector<TiedCopies::Holding> TiedCopies::all_holdings(const TiedParameter& parameter, Stages& stages,
                                                          const DeviceMesh& mesh, Communicator& ranks,
                                                          const std::string& axes) {
  std::vector<Holding> own = own_holdings(parameter, stages, ranks.rank());
  if (dry_rank(mesh) != nullptr) return assumed_holdings(parameter, std::move(own), stages, mesh, axes);
  const auto dims = own.empty() ? 0 : static_cast<int64_t>(own.front().offset.size());
  const at::Tensor most = at::empty({2}, at::kLong);
  most.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(own.size());
  most.mutable_data_ptr<int64_t>()[1] = dims;
  ranks.all_reduce(most, Reduce::max)->wait();
  const int64_t rows = most.const_data_ptr<int64_t>()[0], depth = most.const_data_ptr<int64_t>()[1];
  const at::Tensor mine = at::full({rows, 1 + 2 * depth}, -1, at::kLong);
  const at::Tensor all = at::empty({ranks.size() * rows, 1 + 2 * depth}, at::kLong);
  for (size_t i = 0; i < own.size(); ++i) {
    int64_t* row = mine.mutable_data_ptr<int64_t>() + static_cast<int64_t>(i) * mine.size(1);
    *row = own[i].stage;
    std::copy(own[i].offset.begin(), own[i].offset.end(), row + 1);
    std::copy(own[i].size.begin(), own[i].size.end(), row + 1 + depth);
  }
  ranks.all_gather(all, mine)->wait();
  std::vector<Holding> out;
  for (int64_t i = 0; i < all.size(0); ++i) {
    const int64_t* row = all.const_data_ptr<int64_t>() + i * all.size(1);
    if (*row < 0) continue;
    const int rank = static_cast<int>(i / rows);
    Shard* shard = rank == ranks.rank() ? own[static_cast<size_t>(i % rows)].shard : nullptr;
    out.push_back({rank,
                   static_cast<int>(*row),
                   {row + 1, row + 1 + depth},
                   {row + 1 + depth, row + 1 + 2 * depth},
                   shard});
  }
  return out;
}

void TiedCopies::plan(Copies& copies) {
  std::vector<mesh::TransferPair> pairs;
  for (const Holding& from : copies.holdings)
    for (const Holding& to : copies.holdings) {
      if (from.stage == to.stage) continue;
      Transfer common{&from, &to, from.offset, from.size};
      bool overlap = true;
      for (size_t dim = 0; dim < from.size.size(); ++dim) {
        common.offset[dim] = std::max(from.offset[dim], to.offset[dim]);
        const int64_t end = std::min(from.offset[dim] + from.size[dim], to.offset[dim] + to.size[dim]);
        common.size[dim] = end - common.offset[dim];
        overlap = overlap && common.size[dim] > 0;
      }
      if (!overlap) continue;
      if (from.rank != to.rank) pairs.emplace_back(from.rank, to.rank);
      copies.transfers.push_back(std::move(common));
    }
  std::stable_sort(copies.transfers.begin(), copies.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.from->stage < b.from->stage; });
  mesh::connect(*copies.ranks, pairs);
}

// Returns the values that other ranks send for this rank's shards. All are sent before any shard changes.
TiedCopies::Pieces TiedCopies::exchange(const Copies& copies, bool gradients) {
  const auto values_of = [&](const Shard& shard) {
    if (!gradients) return shard.tensor.detach();
    const at::Tensor& gradient = shard.tensor.grad();
    return gradient.defined() ? gradient : at::zeros_like(shard.tensor);
  };
  Pieces pieces(copies.transfers.size());
  std::vector<std::unique_ptr<Work>> works;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [from, to, offset, size] = copies.transfers[i];
    at::Tensor sent;
    if (from->shard != nullptr)
      sent = box_of(values_of(*from->shard), from->offset, offset, size).contiguous();
    if (to->shard != nullptr)
      pieces[i] = from->shard != nullptr ? sent.clone()
                                         : at::empty(size, to->shard->tensor.options().requires_grad(false));
    if (from->rank == to->rank) continue;
    const int tag = static_cast<int>(i);
    if (from->shard != nullptr) works.push_back(copies.ranks->send(sent, to->rank, tag));
    if (to->shard != nullptr) works.push_back(copies.ranks->receive(pieces[i], from->rank, tag));
  }
  for (const auto& work : works) work->wait();
  return pieces;
}

void TiedCopies::send_values() {
  const at::NoGradGuard no_gradients;
  for (const Copies& copies : copies_) {
    if (!copies.has_values) continue;
    const Pieces pieces = exchange(copies, /*gradients=*/false);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [from, to, offset, size] = copies.transfers[i];
      if (to->shard != nullptr && from->stage == copies.first)
        box_of(to->shard->tensor.detach(), to->offset, offset, size).copy_(pieces[i]);
    }
  }
}

// In the order of the stages on every rank, so that copies stay equal to the bit.
void TiedCopies::add_gradients() {
  const at::NoGradGuard no_gradients;
  for (Copies& copies : copies_) {
    if (!copies.trains) continue;
    const Pieces pieces = exchange(copies, /*gradients=*/true);
    for (const Holding& holding : copies.holdings)
      if (holding.shard != nullptr) add(copies, pieces, holding);
  }
}

// The sum of two numbers does not depend on their order, so with two stages no buffer is needed.
void TiedCopies::add(const Copies& copies, const Pieces& pieces, const Holding& holding) {
  at::Tensor& gradient = holding.shard->tensor.mutable_grad();
  if (copies.stages == 2 && gradient.defined()) {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (const Transfer& one = copies.transfers[i]; one.to == &holding)
        box_of(gradient, holding.offset, one.offset, one.size).add_(pieces[i]);
    return;
  }
  const at::Tensor sum = at::zeros_like(holding.shard->tensor);
  bool waits = gradient.defined();  // this copy's own, until those of the stages before it are added
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [from, to, offset, size] = copies.transfers[i];
    if (to != &holding) continue;
    if (waits && from->stage > holding.stage) {
      sum.add_(gradient);
      waits = false;
    }
    box_of(sum, holding.offset, offset, size).add_(pieces[i]);
  }
  if (waits) sum.add_(gradient);
  if (gradient.defined())
    gradient.copy_(sum);
  else
    gradient = sum;
}

std::vector<TiedParameter> tied_parameters(const Units& units, const StageMap& map) {
  std::vector<TiedParameter> all;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < units.size(); ++i)
    for (const ParameterSlot& slot : units[i]->parameters()) {
      const int stage = map.stage_of_unit[i];
      const auto [place, is_new] = places.emplace(slot.name, all.size());
      if (is_new) all.push_back({slot.name, {stage}, !slot.tensor->is_meta(), slot.trainable()});
      TiedParameter& one = all[place->second];
      if (one.stages.back() != stage) one.stages.push_back(stage);
    }
  std::erase_if(all, [](const TiedParameter& one) { return one.stages.size() == 1; });
  return all;
}

void separate_copies(const Units& units, int stage, std::span<const int> earlier,
                     const std::vector<TiedParameter>& tied) {
  std::map<std::string, at::Tensor> own;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      const auto found = std::find_if(tied.begin(), tied.end(),
                                      [&](const TiedParameter& one) { return one.name == slot.name; });
      if (found == tied.end()) continue;
      const auto shared =
          std::find_first_of(earlier.begin(), earlier.end(), found->stages.begin(), found->stages.end());
      if (shared == earlier.end()) continue;
      if (slot.foreign)
        throw Error(ErrorCode::config, "parallel",
                    "the stages " + std::to_string(*shared) + " and " + std::to_string(stage) +
                        ", which one rank holds, both use '" + slot.name + "' of a foreign module",
                    "choose a schedule with one stage for each rank, or a model without tied parameters");
      at::Tensor& copy = own[slot.name];
      if (!copy.defined())
        copy = slot.tensor->is_meta() ? at::empty_like(*slot.tensor) : slot.tensor->detach().clone();
      slot.point(copy);
    }
}

}  // namespace heddle::parallel
