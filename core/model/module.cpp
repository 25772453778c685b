// The walk over a tree of modules, and out-of-line destructors that anchor the vtables of model.
#include "heddle/model/module.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/unit.h"

namespace heddle {

Unit::~Unit() = default;
UnitBuffers::~UnitBuffers() = default;
Module::~Module() = default;
AfterUpdate::~AfterUpdate() = default;
void AfterUpdate::before_run(const DeviceMesh&) {}

ModuleTraits Module::traits() const {
  return {};
}

void refuse_mixed_tokens(const Module& module, const std::string& path, const std::string& axis,
                         const std::string& where, const std::string& hint) {
  const ModuleTraits traits = module.traits();
  if (traits.tokens == TokenUse::each_alone ||
      std::find(traits.token_axes.begin(), traits.token_axes.end(), axis) != traits.token_axes.end())
    return;
  const std::string name = "'" + path + "' (" + std::string(module.kind()) + ")";
  if (traits.tokens == TokenUse::mixes)
    throw Error(ErrorCode::config, where,
                name + " computes a token from other tokens and has no rule for the axis " + axis +
                    ", whose ranks hold parts of the sequence",
                hint);
  throw Error(ErrorCode::config, where,
              name + " does not say whether it computes each token alone, and ranks along the axis " + axis +
                  " hold parts of the sequence",
              "override Module::traits() in the model, or " + hint);
}

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
