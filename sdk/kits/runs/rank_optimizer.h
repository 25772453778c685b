// Small parameters sharded over ranks, with gradients that depend only on the element's position, and an
// optimizer of them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/testing/whole_tensors.h"
#include "lib/train/optimizer/updater.h"

namespace heddle::kits {

using Make = std::function<std::unique_ptr<IOptimizer>()>;
inline constexpr double kKitLr = 0.03, kKitDecay = 0.1;

// A parameter that the kits train.
struct WholeShape {
  const char* name;
  std::vector<int64_t> shape;
};
// Wide and tall matrices that are split unevenly, a stack, and vectors, of which the last one leaves a rank
// without elements.
inline const std::vector<WholeShape> kWholes = {{"embed_tokens.weight", {11, 4}},
                                                {"layer.0.weight", {7, 5}},
                                                {"layer.1.weight", {3, 13}},
                                                {"layer.1.experts", {2, 3, 5}},
                                                {"layer.1.norm", {13}},
                                                {"lm_head.weight", {11, 4}},
                                                {"layer.2.bias", {1}}};

// This rank's boxes and their optimizer.
class RankOptimizer {
 public:
  RankOptimizer(const Make& make, const DeviceMesh& mesh, at::TensorOptions options, StepConfig config = {})
      : mesh_(mesh), optimizer_(make()) {
    const int64_t ranks = mesh.size("dp_shard"), rank = mesh.rank("dp_shard");
    for (const WholeShape& whole : kWholes) {
      Shard& shard = shards_.emplace_back();
      const size_t dim = list_.size() % whole.shape.size();  // alternates the split dim
      const int64_t begin = rank * whole.shape[dim] / ranks, end = (rank + 1) * whole.shape[dim] / ranks;
      shard.name = whole.name;
      shard.shape = whole.shape;
      shard.offset.assign(whole.shape.size(), 0);
      shard.offset[dim] = begin;
      if (ranks > 1) shard.axes = {"dp_shard"};
      std::vector<int64_t> sizes = whole.shape;
      sizes[dim] = end - begin;
      shard.tensor = at::empty(sizes, options);
      if (!shard.tensor.is_meta()) shard.tensor.copy_(part(shard, 1));
      shard.tensor.requires_grad_();
      list_.push_back(&shard);
    }
    updater_.emplace(list_, mesh_, config, *optimizer_);
  }

  // Sets the gradients of step `step`. without: the parameter that gets none.
  void give_gradients(int64_t step, double factor = 1, const std::string& without = "") {
    for (Shard* shard : list_) {
      if (shard->name == without) continue;
      const auto seed = static_cast<uint64_t>(100 * step) + 7;
      shard->tensor.mutable_grad() =
          (part(*shard, seed) * factor).to(shard->tensor.options().requires_grad(false)).contiguous();
    }
  }
  void step(int64_t step, const std::string& without = "") {
    give_gradients(step, 1, without);
    updater_->update({kKitLr, kKitDecay, {}, {}});
  }

  // Returns weights and state, always in the same order.
  std::vector<at::Tensor> all() {
    std::vector<at::Tensor> out;
    for (Shard* shard : list_) out.push_back(shard->tensor.detach());
    for (const OptimizerState& state : updater_->state())
      for (const StateTensor& one : state.tensors) out.push_back(one.tensor);
    return out;
  }
  std::vector<at::Tensor> copies() {
    std::vector<at::Tensor> out = all();
    for (at::Tensor& one : out) one = one.clone();
    return out;
  }
  std::vector<Shard*>& shards() { return list_; }
  train::Updater& updater() { return *updater_; }

 private:
  static at::Tensor part(const Shard& shard, uint64_t seed) {
    uint64_t place = seed;
    for (const char letter : shard.name) place = 31 * place + static_cast<unsigned char>(letter);
    return box_of(
        shard, at::randn(shard.shape, at::detail::createCPUGenerator(place), at::TensorOptions(at::kDouble)));
  }

  const DeviceMesh mesh_;
  std::unique_ptr<IOptimizer> optimizer_;
  std::deque<Shard> shards_;
  std::vector<Shard*> list_;
  std::optional<train::Updater> updater_;
};

}  // namespace heddle::kits
