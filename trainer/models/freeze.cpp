// Names first, then every slot of each name: a tied parameter has several.
#include "trainer/models/freeze.h"

#include <regex>
#include <set>

#include "heddle/base/error.h"
#include "heddle/model/module.h"

namespace heddle {
namespace {

using Names = std::set<std::string>;

Names of_embeddings(Units& units) {
  Names names;
  for (const auto& unit : units)
    if (unit->module() != nullptr && unit->module()->kind() == "embedding")
      for (const ParameterSlot& slot : unit->parameters()) names.insert(slot.name);
  return names;
}

// Everything but the head of its own: the last unit's parameters, without the norm before it.
Names of_language_model(Units& units) {
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (!slot.name.starts_with("lm_head.")) names.insert(slot.name);
  return names;
}

Names matching(Units& units, const std::string& pattern, const std::string& where) {
  const std::regex expression(pattern);
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (std::regex_search(slot.name, expression)) names.insert(slot.name);
  if (names.empty())
    throw Error(ErrorCode::config, where, "no parameter's name holds a match of '" + pattern + "'",
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
