// ModuleUnit, a unit made of one Module. The bundled models consist of such units.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"

namespace heddle {

// An additional base of a unit's module that passes tensors to the next units besides the hidden states, with
// or without gradients: selected keys, or keys and values that later layers attend to. They follow the hidden
// states in the unit's inputs and outputs. An undefined tensor stands for none. Found by dynamic_cast when
// the unit is created.
class HEDDLE_API Carrier {
 public:
  virtual ~Carrier();
  // Called before the module's call with the tensors of the previous unit.
  virtual void take(Tensors carried) = 0;
  // Called after the module's call. Returns the same number of tensors each time, whose shapes depend only on
  // the shape of the batch. A tensor that is only passed on is returned unchanged.
  virtual Tensors give() = 0;
};

// A unit of one Module. Hidden states are [batch * sequence, width] with one token per row, so a linear layer
// is one matrix product and an all-gather of tokens is along dim 0.
class HEDDLE_API ModuleUnit : public Unit {
 public:
  // prefix: put before the names of the module's slots, such as "layers.3"; may be empty.
  ModuleUnit(std::string name, std::string prefix, std::unique_ptr<Module> module);
  // Moves a unit and puts `under` and a dot before its name, its parameter names and its module paths. The
  // result has no tensor plan, whose patterns would not match these paths.
  ModuleUnit(ModuleUnit&& other, const std::string& under);
  ModuleUnit(ModuleUnit&&) = default;
  std::string_view name() const override { return name_; }
  std::vector<ParameterSlot> parameters() override;
  Module* module() override { return module_.get(); }
  const TensorPlan* tensor_plan() const override { return tensor_plan_.get(); }
  // Passes the batch's tokens to the module in the first unit, and the hidden states in other units.
  Tensors forward(Tensors inputs, const Batch& batch) override;

  // Visits the module and its descendants with full paths ("layers.3.mlp.up").
  void visit(const std::function<void(const std::string& path, Module&)>& visitor);
  // Ties the slot `name` of this unit to the parameter `same_as` of another unit. parameters() lists the slot
  // under `same_as`.
  void tie(const std::string& name, const std::string& same_as);
  void set_tensor_plan(std::shared_ptr<const TensorPlan> plan) { tensor_plan_ = std::move(plan); }

 private:
  std::string name_, prefix_;
  std::unique_ptr<Module> module_;
  Carrier* carrier_;  // the module as a Carrier; null if it is not one
  std::shared_ptr<const TensorPlan> tensor_plan_;
  std::vector<std::pair<std::string, std::string>> ties_;
};

namespace model {

// Visits the modules of all units with full paths. Skips units of foreign models, which have no module.
HEDDLE_API void visit(const Units& units,
                      const std::function<void(const std::string& path, Module&)>& visitor);

// Returns the module as a T of the model library (Linear, Router, AttentionCore, ...), whose seams and chains
// a plugin may use, or null. A plugin uses traits() instead where a role is enough.
template <class T>
T* as(Module& module) {
  return dynamic_cast<T*>(&module);
}

// Calls visitor(path, T&) for every module of class T.
template <class T, class Visitor>
void each(const Units& units, const Visitor& visitor) {
  visit(units, [&](const std::string& path, Module& module) {
    if (T* const found = as<T>(module)) visitor(path, *found);
  });
}

}  // namespace model
}  // namespace heddle
