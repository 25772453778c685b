// ZeRO-2 with compressed gradients: each rank owns rows of every parameter, and gradients are sent as 8-bit
// integers. The rounding error is added to the gradient of the next step (error feedback, Seide et al. 2014)
// and is part of checkpoints.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/sdk.h"

namespace compressed {
namespace {

struct Config {
  std::string compression = "int8";
};

const std::vector<std::string> kAxes = {"dp"};

// A parameter of the model, and the rows of each rank.
struct Parameter {
  std::string name;
  at::Tensor whole;     // a leaf of autograd; the shard is a view of its rows
  at::Tensor residual;  // rounding error of this rank's gradient; undefined in exact mode and if frozen
  std::vector<int64_t> rows;
  int64_t first_row(int rank) const {
    int64_t first = 0;
    for (int i = 0; i < rank; ++i) first += rows[static_cast<size_t>(i)];
    return first;
  }
};

class Stage : public heddle::ParallelStage {
 public:
  Stage(heddle::Units units, const heddle::DeviceMesh& mesh, std::span<const heddle::Placed> placed,
        bool exact)
      : units_(std::move(units)), mesh_(mesh), group_(mesh_.group("dp")), exact_(exact) {
    std::map<std::string, at::Tensor> known;
    for (const auto& unit : units_)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (const auto first = known.find(slot.name); first == known.end())
          known.emplace(slot.name, add(slot, placed));
        else if (!slot.tensor->is_same(first->second))
          slot.point(first->second);
      }
  }

  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }

  void finish_gradients() override {
    const at::NoGradGuard no_gradients;
    at::Tensor used =
        at::zeros({static_cast<int64_t>(parameters_.size())}, at::TensorOptions(mesh_.device()));
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].whole.grad().defined()) used[static_cast<int64_t>(i)].fill_(1);
    group_.all_reduce(used)->wait();
    used = used.cpu();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = parameters_[i];
      at::Tensor gradient = std::exchange(parameter.whole.mutable_grad(), at::Tensor());
      if (used[static_cast<int64_t>(i)].item<float>() == 0) continue;
      if (!gradient.defined()) gradient = at::zeros_like(parameter.whole.detach());
      owned_[i].tensor.mutable_grad() = sum_of_rows(parameter, gradient.detach());
    }
  }

  std::span<heddle::Shard> owned() override { return owned_; }

  // Broadcasts the rows of each rank.
  void parameters_changed(heddle::ParametersChange change) override {
    const at::NoGradGuard no_gradients;
    for (Parameter& parameter : parameters_) {
      for (int rank = 0; rank < group_.size(); ++rank)
        if (const int64_t count = parameter.rows[static_cast<size_t>(rank)]; count > 0)
          group_.broadcast(parameter.whole.detach().narrow(0, parameter.first_row(rank), count), rank)
              ->wait();
      if (change == heddle::ParametersChange::begun && parameter.residual.defined())
        parameter.residual.zero_();
    }
  }

  std::vector<heddle::StateTensor> state() override {
    std::vector<heddle::StateTensor> out;
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].residual.defined())
        out.push_back(heddle::rank_state(mesh_, kAxes,
                                         {"residual." + parameters_[i].name, parameters_[i].residual,
                                          owned_[i].shape, std::vector<int64_t>(owned_[i].shape.size(), 0)}));
    return out;
  }

  std::vector<heddle::WholeParameter> hold_whole() override {
    std::vector<heddle::WholeParameter> out;
    for (const Parameter& parameter : parameters_) out.push_back({parameter.name, parameter.whole.detach()});
    return out;
  }

 private:
  at::Tensor add(heddle::ParameterSlot& slot, std::span<const heddle::Placed> placed) {
    if (slot.tensor->dim() == 0)
      throw heddle::Error(heddle::ErrorCode::config, "compressed",
                          "the parameter '" + slot.name + "' is a scalar, but ranks own rows of parameters",
                          "train this model with another strategy");
    heddle::Shard& shard = owned_.emplace_back(heddle::whole_shard(slot, placed));
    if (slot.tensor->is_meta())
      slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(mesh_.device())));
    else
      group_.broadcast(slot.tensor->detach(), 0)->wait();  // rank 0's values
    Parameter parameter{slot.name, *slot.tensor, {}, {}};
    const int64_t all = parameter.whole.size(0), ranks = group_.size();
    for (int64_t rank = 0; rank < ranks; ++rank)
      parameter.rows.push_back((rank + 1) * all / ranks - rank * all / ranks);
    const int64_t first = parameter.first_row(group_.rank());
    shard.tensor = parameter.whole.detach()
                       .narrow(0, first, parameter.rows[static_cast<size_t>(group_.rank())])
                       .requires_grad_(slot.trainable());
    shard.offset[0] += first;
    shard.axes.push_back("dp");
    if (slot.trainable() && !exact_) parameter.residual = at::zeros_like(parameter.whole.detach());
    parameters_.push_back(std::move(parameter));
    return parameters_.back().whole;
  }

  // Returns this rank's rows of the sum of the rounded gradients, added in the order of the ranks.
  at::Tensor sum_of_rows(Parameter& parameter, at::Tensor gradient) {
    const auto mine = static_cast<size_t>(group_.rank()), ranks = static_cast<size_t>(group_.size());
    at::Tensor scale = at::zeros({1}, gradient.options()), sent = gradient.contiguous();
    if (!exact_) {
      gradient = gradient + parameter.residual;
      scale = (gradient.abs().max() / 127).clamp_min(1e-30).view({1});
      const at::Tensor rounded = (gradient / scale).round();
      parameter.residual.copy_(gradient - rounded * scale);
      sent = rounded.to(at::kChar);
    }
    const at::Tensor scales = at::empty({group_.size()}, scale.options());
    group_.all_gather(scales, scale)->wait();
    std::vector<int64_t> sizes = sent.sizes().vec();
    sizes[0] = parameter.rows[mine] * group_.size();
    const at::Tensor received = at::empty(sizes, sent.options());
    const std::vector<int64_t> counts(ranks, parameter.rows[mine]);
    group_.all_to_all(received, sent, counts, parameter.rows)->wait();
    sizes[0] = parameter.rows[mine];
    at::Tensor sum = at::zeros(sizes, gradient.options());
    for (size_t rank = 0; rank < ranks; ++rank) {
      const at::Tensor part =
          received.narrow(0, static_cast<int64_t>(rank) * parameter.rows[mine], parameter.rows[mine]);
      sum += exact_ ? part : part.to(sum.scalar_type()) * scales[static_cast<int64_t>(rank)];
    }
    return sum;
  }

  heddle::Units units_;
  const heddle::DeviceMesh mesh_;
  heddle::Communicator& group_;
  bool exact_;
  std::vector<Parameter> parameters_;
  std::vector<heddle::Shard> owned_;  // one per parameter
};

class Strategy : public heddle::IStrategy {
 public:
  explicit Strategy(Config config) : exact_(config.compression == "float32") {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"dp"};
    needs.refuses = {{"pp", "compressed is an example without pipeline parallelism"},
                     {"tp", "compressed is an example without tensor parallelism"},
                     {"cp", "compressed is an example without context parallelism"},
                     {"ep", "compressed is an example without expert parallelism"}};
    if (!exact_)
      needs.approximate = {0.02, "gradients are rounded to 8 bits before they are summed",
                           "{compression: float32}"};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<Stage>(std::move(units), mesh, placed, exact_);
  }

 private:
  bool exact_;
};

}  // namespace
}  // namespace compressed

HEDDLE_PLUGIN("compressed", "0.1.0", "strategy compressed") {
  using compressed::Config;
  plugin.strategy<compressed::Strategy>(
      "compressed", heddle::ConfigSchema<Config>().field(
                        "compression", &Config::compression,
                        "Compression of gradients: int8 with error feedback, or float32, which is exact.",
                        heddle::OneOf{{"int8", "float32"}}));
}
