// Units of torch::nn modules, for every strategy and the pipeline; the state of a torch::optim optimizer in
// checkpoints.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/model/unit.h"

namespace heddle::adapters {

// A part of a foreign model that is gathered, run and released together: one layer or a few.
struct TorchPiece {
  std::string name;                           // "layers.3"; the parameters' names begin with it
  std::shared_ptr<torch::nn::Module> module;  // the module with its parameters
  // See Unit::forward: the first piece reads the batch, the last one returns {sum of token losses} if there
  // are labels. One call at a time; an overlapped one may be on another thread.
  std::function<Tensors(Tensors inputs, const Batch& batch)> forward;
};

namespace detail {

class TorchUnit : public Unit, public UnitBuffers {
 public:
  TorchUnit(TorchPiece piece, std::map<c10::TensorImpl*, std::string>& names) : piece_(std::move(piece)) {
    for (const auto& item : piece_.module->named_parameters()) {
      const at::Tensor& tensor = item.value();
      if (!tensor.is_leaf() || tensor.is_meta())
        throw Error(ErrorCode::input, "adapters::torch_units",
                    "the parameter '" + piece_.name + "." + item.key() + "' has no values of its own",
                    "build the torch::nn module on a real device, and pass its parameters as they are");
      // One tensor in two places is one parameter: it keeps its first name.
      const auto first = names.emplace(tensor.unsafeGetTensorImpl(), piece_.name + "." + item.key()).first;
      names_.push_back(first->second);
      tensors_.push_back(tensor);
    }
  }

  std::string_view name() const override { return piece_.name; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out;
    for (size_t i = 0; i < tensors_.size(); ++i) out.push_back({names_[i], &tensors_[i], {}, true});
    return out;
  }
  std::vector<at::Tensor> buffers() override {
    std::vector<at::Tensor> out;
    for (const auto& item : piece_.module->named_buffers()) out.push_back(item.value());
    return out;
  }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    return piece_.forward(std::move(inputs), batch);
  }

 private:
  TorchPiece piece_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> tensors_;  // handles of the module's own tensors
};

}  // namespace detail

// Units in the order of the pieces. The modules' tensors are changed in place (set_data): hold no copies of
// their data. Every rank passes modules with the same values; buffers keep the module's values unless the
// strategy sends rank 0's. Throws Error{input} for a parameter without values.
inline Units torch_units(std::vector<TorchPiece> pieces) {
  Units units;
  std::map<c10::TensorImpl*, std::string> names;
  for (TorchPiece& piece : pieces)
    units.push_back(std::make_unique<detail::TorchUnit>(std::move(piece), names));
  return units;
}

// AdamW's state of each non-empty shard as boxes of a checkpoint, "exp_avg.NAME" and "exp_avg_sq.NAME", with
// zeros where the optimizer has made no step. The optimizer's parameters are the shards' tensors. After
// reading, set_steps() gives the number of updates.
inline std::vector<checkpoint::Part> adamw_parts(Stages& stages, torch::optim::AdamW& optimizer) {
  std::vector<checkpoint::Part> parts;
  for (const Shard* shard : stages.shards()) {
    if (shard->tensor.numel() == 0 || !shard->tensor.requires_grad()) continue;
    auto& kept = optimizer.state()[shard->tensor.unsafeGetTensorImpl()];
    if (!kept) {
      auto fresh = std::make_unique<torch::optim::AdamWParamState>();
      const at::Tensor zeros = shard->tensor.detach().clone().zero_();
      fresh->exp_avg(zeros).exp_avg_sq(zeros.clone());
      kept = std::move(fresh);
    }
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*kept);
    parts.push_back(checkpoint::part_of(*shard, state.exp_avg(), "exp_avg."));
    parts.push_back(checkpoint::part_of(*shard, state.exp_avg_sq(), "exp_avg_sq."));
  }
  return parts;
}
inline void set_steps(torch::optim::AdamW& optimizer, int64_t steps) {
  for (const auto& [parameter, kept] : optimizer.state())
    static_cast<torch::optim::AdamWParamState&>(*kept).step(steps);
}

}  // namespace heddle::adapters
