// Helpers of transforms: children of modules, and parameters by regular expressions.
#include "heddle/plugin/transform.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"

namespace heddle {

ITransform::~ITransform() = default;

namespace transform {
namespace {

// Names the protected function, so that it can be called for any module.
struct Children : Module {
  static constexpr auto kAdd = &Children::add_child;
};

}  // namespace

void add_child(Module& parent, std::string name, Module& child) {
  for (const auto& [other, module] : parent.children())
    if (other == name)
      throw Error(ErrorCode::config, "transform",
                  "the " + std::string(parent.kind()) + " has a child '" + name + "' already",
                  "give the new child another name");
  (parent.*Children::kAdd)(std::move(name), child);
}

void extend_tensor_plan(Units& units, const TensorPlan& styles) {
  std::map<const TensorPlan*, std::shared_ptr<const TensorPlan>> extended;  // by plan: units share one
  for (const auto& unit : units) {
    auto* const own = dynamic_cast<ModuleUnit*>(unit.get());
    if (own == nullptr)
      throw Error(ErrorCode::config, "transform",
                  "the unit '" + std::string(unit->name()) +
                      "' is a foreign model without modules, which cannot be split along tp",
                  "extend the plans of heddle's own models only");
    auto& plan = extended[own->tensor_plan()];
    if (plan == nullptr) {
      TensorPlan longer = own->tensor_plan() == nullptr ? TensorPlan() : *own->tensor_plan();
      longer.insert(longer.end(), styles.begin(), styles.end());
      plan = std::make_shared<const TensorPlan>(std::move(longer));
    }
    own->set_tensor_plan(plan);
  }
}

std::vector<std::string> parameters_matching(const Units& units, const std::string& expression,
                                             const std::string& where) {
  const text::Pattern pattern(expression, where);
  std::vector<std::string> names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (pattern.found_in(slot.name) && std::find(names.begin(), names.end(), slot.name) == names.end())
        names.push_back(slot.name);
  if (names.empty())
    throw Error(ErrorCode::config, where,
                "no parameter name contains a match of '" + text::excerpt(expression) + "'",
                "parameter names look like '" + units.front()->parameters().front().name + "'");
  return names;
}

void check_expressions(const Node& value) {
  if (!value.is_list()) return;  // the schema says so
  for (const Node& item : value.items()) text::Pattern(item.as_text(), item.where());
}

}  // namespace transform
}  // namespace heddle
