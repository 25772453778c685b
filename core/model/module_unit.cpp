// A unit made of one Module.
#include "heddle/model/module_unit.h"

#include <utility>

namespace heddle {

Carrier::~Carrier() = default;

ModuleUnit::ModuleUnit(std::string name, std::string prefix, std::unique_ptr<Module> module)
    : name_(std::move(name)),
      prefix_(std::move(prefix)),
      module_(std::move(module)),
      carrier_(dynamic_cast<Carrier*>(module_.get())) {}

ModuleUnit::ModuleUnit(ModuleUnit&& other, const std::string& under)
    : name_(under + "." + other.name_),
      prefix_(under + (other.prefix_.empty() ? "" : "." + other.prefix_)),
      module_(std::move(other.module_)),
      carrier_(other.carrier_) {
  for (const auto& [name, same_as] : other.ties_) tie(under + "." + name, under + "." + same_as);
}

std::vector<ParameterSlot> ModuleUnit::parameters() {
  std::vector<ParameterSlot> slots = module_->parameters(prefix_);
  for (ParameterSlot& slot : slots)
    for (const auto& [name, same_as] : ties_)
      if (slot.name == name) slot.name = same_as;
  return slots;
}

Tensors ModuleUnit::forward(Tensors inputs, const Batch& batch) {
  at::Tensor x = inputs.empty() ? batch.tokens : std::move(inputs[0]);
  if (!inputs.empty()) inputs.erase(inputs.begin());
  if (carrier_ != nullptr) carrier_->take(std::move(inputs));
  Tensors out = {module_->call(std::move(x), batch)};
  if (carrier_ != nullptr)
    for (at::Tensor& carried : carrier_->give()) out.push_back(std::move(carried));
  return out;
}

void ModuleUnit::visit(const std::function<void(const std::string& path, Module&)>& visitor) {
  module_->visit(prefix_, visitor);
}

void ModuleUnit::tie(const std::string& name, const std::string& same_as) {
  ties_.emplace_back(name, same_as);
}

void model::visit(const Units& units, const std::function<void(const std::string& path, Module&)>& visitor) {
  for (const auto& unit : units)
    if (auto* known = dynamic_cast<ModuleUnit*>(unit.get()))
      known->visit([&](const std::string& path, Module& module) {
        visitor(path.empty() ? std::string(unit->name()) : path, module);
      });
    else if (unit->module() != nullptr)
      unit->module()->visit(std::string(unit->name()), visitor);
}

}  // namespace heddle
