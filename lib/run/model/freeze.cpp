// Names first, then every slot of each name: a tied parameter has several.
#include "lib/run/model/freeze.h"

#include <algorithm>
#include <functional>
#include <set>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module.h"
#include "heddle/model/module_unit.h"

namespace heddle {
namespace {

using Names = std::set<std::string>;

// Calls `visit` for every module of the units that are made of modules.
void for_each_module(Units& units, const std::function<void(Module&)>& visit) {
  for (const auto& unit : units)
    if (auto* known = dynamic_cast<ModuleUnit*>(unit.get()))
      known->visit([&](const std::string&, Module& module) { visit(module); });
}

// The names of the parameters that lie in these tensors, or of all others.
Names of_tensors(Units& units, const std::set<const at::Tensor*>& tensors, bool inside) {
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (tensors.contains(slot.tensor) == inside) names.insert(slot.name);
  return names;
}

Names of_embeddings(Units& units) {
  std::set<const at::Tensor*> tensors;
  for_each_module(units, [&](Module& module) {
    if (module.kind() != "embedding") return;
    for (const ParameterSlot& slot : module.slots()) tensors.insert(slot.tensor);
  });
  return of_tensors(units, tensors, true);
}

// Everything but the head of its own: the linear layer beside the loss.
Names of_language_model(Units& units) {
  std::set<const at::Tensor*> head;
  for_each_module(units, [&](Module& module) {
    const auto& children = module.children();
    if (std::none_of(children.begin(), children.end(),
                     [](const auto& child) { return child.second->kind() == "token_loss"; }))
      return;
    for (const auto& [name, child] : children)
      if (child->kind() == "linear")
        for (const ParameterSlot& slot : child->slots()) head.insert(slot.tensor);
  });
  return of_tensors(units, head, false);
}

Names matching(Units& units, const std::string& pattern, const std::string& where) {
  const text::Pattern expression(pattern, where);
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (expression.found_in(slot.name)) names.insert(slot.name);
  if (names.empty())
    throw Error(ErrorCode::config, where,
                "no parameter's name holds a match of '" + text::excerpt(pattern) + "'",
                "names are such as '" + units.front()->parameters().front().name + "'");
  return names;
}

}  // namespace

void freeze(Units& units, const FreezeSection& section) {
  Names names;
  if (section.embeddings) names.merge(of_embeddings(units));
  if (section.language_model) names.merge(of_language_model(units));
  for (const std::string& pattern : section.patterns) names.merge(matching(units, pattern, section.where));
  bool trains = false;
  for (auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (names.contains(slot.name)) slot.tensor->set_requires_grad(false);
      trains = trains || slot.trainable();
    }
  if (!trains)
    throw Error(ErrorCode::config, section.where, "nothing is left to train",
                "freeze less; a head that is tied to the embedding is frozen with it");
}

}  // namespace heddle
