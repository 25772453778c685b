// The walk over a tree of modules, and out-of-line destructors that anchor the vtables of model.
#include "heddle/model/module.h"

#include <utility>

#include "heddle/model/unit.h"

namespace heddle {

Unit::~Unit() = default;
UnitBuffers::~UnitBuffers() = default;
Module::~Module() = default;
AfterUpdate::~AfterUpdate() = default;
void AfterUpdate::before_run(const DeviceMesh&) {}

void Module::add_slot(std::string name, at::Tensor& tensor, Init init) {
  slots_.push_back({std::move(name), &tensor, init});
}

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string& path, Module&)>& visitor) {
  visitor(prefix, *this);
  for (auto& [name, child] : children_) child->visit(prefix.empty() ? name : prefix + "." + name, visitor);
}

std::vector<ParameterSlot> Module::parameters(const std::string& prefix) {
  std::vector<ParameterSlot> out;
  visit(prefix, [&out](const std::string& path, Module& module) {
    for (ParameterSlot slot : module.slots_) {
      if (!path.empty()) slot.name = path + "." + slot.name;
      out.push_back(std::move(slot));
    }
  });
  return out;
}

}  // namespace heddle
