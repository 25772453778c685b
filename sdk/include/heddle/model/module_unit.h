// A unit made of one Module: what the bundled models are made of.
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

// What the module of a unit is besides where tensors go from unit to unit beside the hidden states, with
// gradients or without: a choice of keys, keys and values that later layers see. They follow the first tensor
// of the units; an undefined one stands for none. Found by dynamic_cast when the unit is made.
class HEDDLE_API Carrier {
 public:
  virtual ~Carrier();
  // Before the module's call: what the unit before gave.
  virtual void take(Tensors carried) = 0;
  // After the call: always as many, and their shapes follow from that of the batch. What only passes is the
  // same tensor.
  virtual Tensors give() = 0;
};

// Hidden states between such units are [batch * sequence, width]: rows are tokens, so a linear layer is one
// product and a gather along the tokens is a gather along dim 0.
class HEDDLE_API ModuleUnit : public Unit {
 public:
  // `prefix` is put before the names of the module's slots: "layers.3", or empty.
  ModuleUnit(std::string name, std::string prefix, std::unique_ptr<Module> module);
  // The same unit with `under` and a dot before its name, its parameters' names and its modules' paths. Its
  // tensor plan is left out, as its patterns do not have them.
  ModuleUnit(ModuleUnit&& other, const std::string& under);
  ModuleUnit(ModuleUnit&&) = default;
  std::string_view name() const override { return name_; }
  std::vector<ParameterSlot> parameters() override;
  Module* module() override { return module_.get(); }
  const TensorPlan* tensor_plan() const override { return tensor_plan_.get(); }
  // The first unit's module gets the batch's tokens; every other one the hidden states.
  Tensors forward(Tensors inputs, const Batch& batch) override;

  // The module and all below it with their full paths ("layers.3.mlp.up").
  void visit(const std::function<void(const std::string& path, Module&)>& visitor);
  // Ties the slot `name` of this unit to the parameter `same_as` of another unit; it is listed under that
  // name.
  void tie(const std::string& name, const std::string& same_as);
  void set_tensor_plan(std::shared_ptr<const TensorPlan> plan) { tensor_plan_ = std::move(plan); }

 private:
  std::string name_, prefix_;
  std::unique_ptr<Module> module_;
  Carrier* carrier_;  // the module; null: it is none
  std::shared_ptr<const TensorPlan> tensor_plan_;
  std::vector<std::pair<std::string, std::string>> ties_;
};

namespace model {

// Visits the modules of all units with their full paths. A foreign model's units have none and are left out.
HEDDLE_API void visit(const Units& units,
                      const std::function<void(const std::string& path, Module&)>& visitor);

// The module as a T of the model library (Linear, Router, AttentionCore, ...), whose seams and chains a
// plugin uses; null where it is none. A plugin asks traits() first where a role says enough.
template <class T>
T* as(Module& module) {
  return dynamic_cast<T*>(&module);
}

// visitor(path, T&) for the modules of class T.
template <class T, class Visitor>
void each(const Units& units, const Visitor& visitor) {
  visit(units, [&](const std::string& path, Module& module) {
    if (T* const found = as<T>(module)) visitor(path, *found);
  });
}

}  // namespace model
}  // namespace heddle
