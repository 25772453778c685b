// Units from torch::nn modules, for every strategy and the pipeline, and the state of a torch::optim
// optimizer in checkpoints.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/model/autocast.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/strategy.h"

namespace heddle::adapters {

// A part of a foreign model that is gathered, run and released together: one or a few layers.
struct TorchPiece {
  std::string name;                           // "layers.3", a prefix of the parameter names
  std::shared_ptr<torch::nn::Module> module;  // the module with its parameters
  // See Unit::forward: the first piece reads the batch, and the last one returns {sum of token losses} if
  // there are labels. Called by one thread at a time; an overlapped call may come from another thread.
  std::function<Tensors(Tensors inputs, const Batch& batch)> forward;
};

namespace detail {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using Names = std::map<c10::TensorImpl*, std::string>;  // a tensor in two places keeps its first name

class TorchUnit : public Unit, public UnitBuffers {
 public:
  using Forward = std::function<Tensors(Tensors inputs, const Batch& batch)>;
  TorchUnit(std::string name, const NamedTensors& parameters, std::vector<at::Tensor> buffers,
            Forward forward, Names& names)
      : name_(std::move(name)), buffers_(std::move(buffers)), forward_(std::move(forward)) {
    for (const auto& [own, tensor] : parameters) {
      if (!tensor.is_leaf() || tensor.is_meta())
        throw Error(ErrorCode::input, "adapters", "the parameter '" + own + "' has no values of its own",
                    "build the torch::nn module on a real device, and pass its parameters as they are");
      names_.push_back(names.emplace(tensor.unsafeGetTensorImpl(), own).first->second);
      tensors_.push_back(tensor);
    }
  }

  std::string_view name() const override { return name_; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out;
    for (size_t i = 0; i < tensors_.size(); ++i) out.push_back({names_[i], &tensors_[i], {}, true});
    return out;
  }
  std::vector<at::Tensor> buffers() override { return buffers_; }
  Tensors forward(Tensors inputs, const Batch& batch) override { return forward_(std::move(inputs), batch); }

 private:
  std::string name_;
  std::vector<at::Tensor> buffers_;
  Forward forward_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> tensors_;  // the module's own tensors
};

inline NamedTensors with_prefix(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                                const std::string& prefix) {
  NamedTensors out;
  for (const auto& item : tensors) out.emplace_back(prefix + item.key(), item.value());
  return out;
}

inline at::Tensor cast(at::Tensor tensor, std::optional<at::ScalarType> dtype) {
  return dtype && tensor.defined() && tensor.is_floating_point() ? tensor.to(*dtype) : tensor;
}

// Calls `call` with each tensor of a result, which is a tensor or a vector, pair or tuple of results.
template <class Call>
void each_tensor(at::Tensor& result, const Call& call) {
  call(result);
}
template <class Call, class Results>
void each_tensor(Results& results, const Call& call) {
  if constexpr (requires { results.begin(); })
    for (auto& result : results) each_tensor(result, call);
  else
    std::apply([&](auto&... result) { (each_tensor(result, call), ...); }, results);
}

}  // namespace detail

// Returns units in the order of the pieces. The modules' tensors are modified in place (set_data), so do not
// keep copies of their data. Every rank passes modules with equal values. Buffers keep the module's values
// unless the strategy broadcasts rank 0's buffers. Throws Error{input} for a parameter without values.
inline Units torch_units(std::vector<TorchPiece> pieces) {
  Units units;
  detail::Names names;
  for (const TorchPiece& piece : pieces) {
    const auto run = [piece](Tensors inputs, const Batch& batch) {
      return piece.forward(std::move(inputs), batch);
    };
    units.push_back(std::make_unique<detail::TorchUnit>(
        piece.name, detail::with_prefix(piece.module->named_parameters(), piece.name + "."),
        piece.module->buffers(), run, names));
  }
  return units;
}

// A model with its own forward. The first unit is the root, which has all parameters outside of the named
// units and runs these units inside. The model's forward calls `x = model.run(layer, x)` instead of `x =
// layer->forward(x)`, in any order, conditionally or repeatedly. A module of the root, such as an embedding,
// is called as usual. Every rank runs the same number of forwards, but may skip units. Requires a strategy
// whose stages can_host_forward(). Pipelines, tensor parallelism and activation_checkpointing need
// torch_units() instead.
class TorchModel {
 public:
  // units: names of submodules such as "layers.0", none inside another. Throws Error{input} for a name that
  // the module does not have, and for nested or repeated names.
  TorchModel(std::shared_ptr<torch::nn::Module> module, std::vector<std::string> units)
      : module_(std::move(module)), names_(std::move(units)) {
    const auto modules = module_->named_modules("", /*include_self=*/false);
    for (size_t i = 0; i < names_.size(); ++i) {
      const auto* const found = modules.find(names_[i]);
      if (found == nullptr) refuse("the module has no submodule '" + names_[i] + "'");
      for (size_t j = 0; j < names_.size(); ++j)
        if (j != i && (names_[i] + ".").starts_with(names_[j] + "."))
          refuse("the unit '" + names_[i] + "' is inside the unit '" + names_[j] + "', or given twice");
      units_.emplace(found->get(), i + 1);
    }
  }

  // Returns the root, "model", and then the units in the order of their names, for ModelHost::make_units.
  // Parameters have the names of the module. The module's tensors are modified in place, as by torch_units().
  Units units() const {
    const auto inside = [&](const std::string& name) {
      return std::any_of(names_.begin(), names_.end(),
                         [&](const std::string& unit) { return name.starts_with(unit + "."); });
    };
    detail::Names names;
    detail::NamedTensors own;
    for (auto& parameter : detail::with_prefix(module_->named_parameters(), ""))
      if (!inside(parameter.first)) own.push_back(std::move(parameter));
    std::vector<at::Tensor> buffers;
    for (const auto& [name, buffer] : detail::with_prefix(module_->named_buffers(), ""))
      if (!inside(name)) buffers.push_back(buffer);
    Units out;
    out.push_back(std::make_unique<detail::TorchUnit>("model", own, std::move(buffers), not_called(), names));
    const auto modules = module_->named_modules();
    for (const std::string& name : names_) {
      const torch::nn::Module& unit = *modules[name];
      out.push_back(
          std::make_unique<detail::TorchUnit>(name, detail::with_prefix(unit.named_parameters(), name + "."),
                                              unit.buffers(), not_called(), names));
    }
    return out;
  }

  // Runs `call`, the module's own forward of one microbatch, on the stage built from units(), and returns its
  // result: a tensor of any shape, or a vector, pair or tuple of tensors. Gradients must be enabled or
  // disabled for the whole forward. An exception of `call` ends the forward on this rank. Throws Error{input}
  // if the strategy does not support forwards that a host drives, and for a unit that violates the order of
  // the first forward.
  template <class Call>
  auto forward(ParallelStage& stage, const Batch& batch, Call&& call) {
    stage_ = &stage;
    if (const auto dtype = stage.autocast(); dtype && !autocast_)
      autocast_.emplace(*dtype, model::Autocast::Weights::cast_each_time);
    stage.begin_forward(batch);
    try {
      const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
      auto result = run_unit(0, [&] { return call(); });
      stage.end_forward();
      return result;
    } catch (...) {
      stage.abandon_forward();
      throw;
    }
  }

  // Calls module->forward(arguments...) as a unit with whole parameters. Tensors in arguments and results are
  // cast to the dtypes of ParallelStage::unit_precision(). Before the first forward() it only calls the
  // module, so that the model also trains without heddle. Throws Error{input} for a module that is not a
  // unit.
  template <class Holder, class... Arguments>
  auto run(Holder&& module, Arguments&&... arguments) {
    const auto found = units_.find(&*module);
    if (found == units_.end()) refuse("a module that runs is not one of the units");
    if (stage_ == nullptr) return module->forward(std::forward<Arguments>(arguments)...);
    const std::optional<at::ScalarType> dtype = stage_->unit_precision(found->second).inputs;
    return run_unit(found->second, [&] {
      return module->forward(cast_argument(std::forward<Arguments>(arguments), dtype)...);
    });
  }

 private:
  [[noreturn]] static void refuse(const std::string& message) {
    throw Error(ErrorCode::input, "adapters::TorchModel", message,
                "name submodules as named_modules() does, each once and none inside another");
  }
  static detail::TorchUnit::Forward not_called() {
    return [](Tensors, const Batch&) -> Tensors {
      throw Error(ErrorCode::input, "adapters::TorchModel",
                  "a unit of a model with a forward of its own is called",
                  "call TorchModel::forward(); pipelines and Step need torch_units()");
    };
  }
  template <class Argument>
  static decltype(auto) cast_argument(Argument&& argument, std::optional<at::ScalarType> dtype) {
    if constexpr (std::is_same_v<std::decay_t<Argument>, at::Tensor>)
      return detail::cast(std::forward<Argument>(argument), dtype);
    else
      return std::forward<Argument>(argument);
  }
  template <class Call>
  auto run_unit(size_t unit, const Call& call) {
    const std::optional<at::ScalarType> dtype = stage_->unit_precision(unit).outputs;
    stage_->before(unit);
    auto result = call();
    Tensors outputs;
    detail::each_tensor(result, [&](at::Tensor& output) {
      if (output.defined() && output.numel() > 1) output = detail::cast(std::move(output), dtype);
      if (output.defined() && output.requires_grad()) outputs.push_back(output);
    });
    stage_->after(unit, outputs);
    return result;
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<std::string> names_;
  std::map<const torch::nn::Module*, size_t> units_;
  ParallelStage* stage_ = nullptr;  // stage of the last forward
  std::optional<model::Autocast> autocast_;
};

// Returns `module` with its units by name and its own forward.
inline std::shared_ptr<TorchModel> torch_model(std::shared_ptr<torch::nn::Module> module,
                                               std::vector<std::string> units) {
  return std::make_shared<TorchModel>(std::move(module), std::move(units));
}

namespace detail {
// Returns AdamW's state of a shard, zeros before the optimizer's first step; null for a shard without values
// or without gradients.
inline torch::optim::AdamWParamState* adamw_state(const Shard& shard, torch::optim::AdamW& optimizer) {
  if (shard.tensor.numel() == 0 || !shard.tensor.requires_grad()) return nullptr;
  auto& kept = optimizer.state()[shard.tensor.unsafeGetTensorImpl()];
  if (!kept) {
    auto fresh = std::make_unique<torch::optim::AdamWParamState>();
    const at::Tensor zeros = shard.tensor.detach().clone().zero_();
    fresh->exp_avg(zeros).exp_avg_sq(zeros.clone());
    kept = std::move(fresh);
  }
  return static_cast<torch::optim::AdamWParamState*>(kept.get());
}

// Number of updates of a shard's parameter, as a box of one element that every rank with a part of it holds.
inline checkpoint::Part step_part(const Shard& shard, int64_t step) {
  return {"step." + shard.name, at::full({1}, step, at::kLong), {1}, {0}};
}
}  // namespace detail

// AdamW's state of each non-empty shard as boxes of a checkpoint: "exp_avg.NAME" and "exp_avg_sq.NAME" in the
// shape of the shard, and "step.NAME", int64 of shape [1]. The optimizer's parameters are the shards'
// tensors.
inline std::vector<checkpoint::Part> adamw_parts(Stages& stages, torch::optim::AdamW& optimizer) {
  std::vector<checkpoint::Part> parts;
  for (const Shard* shard : stages.shards()) {
    const auto* state = detail::adamw_state(*shard, optimizer);
    if (!state) continue;
    parts.push_back(checkpoint::part_of(*shard, state->exp_avg(), "exp_avg."));
    parts.push_back(checkpoint::part_of(*shard, state->exp_avg_sq(), "exp_avg_sq."));
    parts.push_back(detail::step_part(*shard, state->step()));
  }
  return parts;
}

// Reads what adamw_parts() described into the optimizer. Throws Error{input} as ShardedReader::read() does.
inline void read_adamw(checkpoint::ShardedReader& reader, Stages& stages, torch::optim::AdamW& optimizer) {
  for (const Shard* shard : stages.shards()) {
    auto* state = detail::adamw_state(*shard, optimizer);
    if (!state) continue;
    reader.read(checkpoint::part_of(*shard, state->exp_avg(), "exp_avg."));
    reader.read(checkpoint::part_of(*shard, state->exp_avg_sq(), "exp_avg_sq."));
    const checkpoint::Part step = detail::step_part(*shard, 0);
    reader.read(step);
    state->step(step.tensor.item<int64_t>());
  }
}

}  // namespace heddle::adapters
