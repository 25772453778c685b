// Compares the parameters before and after a transform with what it says.
#include "core/plugin/named/named_transform.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/plugin/named/named_seams.h"

namespace heddle::plugin {
namespace {

struct Parameter {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool trains = false;
};
using Parameters = std::map<std::string, Parameter>;

Parameters parameters_of(const Units& units) {
  Parameters out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      out[slot.name] = {slot.tensor->sizes().vec(), slot.tensor->scalar_type(), slot.trainable()};
  return out;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A frozen parameter that is computed from itself may be held in another form.
bool is_packed(const std::string& name, const Parameter& is, const Transformed& said) {
  const auto derived = said.derived.find(name);
  return derived != said.derived.end() && derived->second.from == name && !is.trains;
}

// Why the units are not as the transform says, and what to do; empty: they are.
std::pair<std::string, std::string> fault_of(const Parameters& before, const Parameters& after,
                                             const Transformed& said) {
  for (const auto& [name, was] : before) {
    const auto found = after.find(name);
    if (found == after.end()) return {"it removed the parameter '" + name + "'", "keep it, and freeze it"};
    const Parameter& is = found->second;
    if ((is.shape != was.shape || is.dtype != was.dtype) && !is_packed(name, is, said))
      return {"it changed the shape or the dtype of '" + name + "'", "add a parameter of another name"};
    if (!was.trains && is.trains)
      return {"'" + name + "' did not train before, and trains now", "leave frozen parameters frozen"};
    if (was.trains && !is.trains && !has(said.frozen, name))
      return {"it froze '" + name + "' and does not say so", "list it in Transformed::frozen"};
    if (has(said.frozen, name) && (is.trains || !was.trains))
      return {
          "it says that it froze '" + name + "', which " + (is.trains ? "trains" : "did not train before"),
          "list in Transformed::frozen what it froze"};
  }
  for (const auto& [name, is] : after)
    if (before.count(name) == 0 && !has(said.added, name))
      return {"it added the parameter '" + name + "' and does not say so", "list it in Transformed::added"};
  for (const std::string& name : said.added)
    if (before.count(name) != 0 || after.count(name) == 0)
      return {"it says that it added '" + name + "', which " +
                  (after.count(name) == 0 ? "is not there" : "was there before"),
              "list in Transformed::added what it added"};
  for (const auto& [name, derived] : said.derived)
    if (after.count(name) == 0 || before.count(derived.from) == 0 || !derived.fill)
      return {"it derives '" + name + "' from '" + derived.from + "', and one of them is not there",
              "list in Transformed::derived parameters that are there, each with its function"};
  for (const std::string& name : said.frozen)
    if (before.count(name) == 0)
      return {"it says that it froze '" + name + "', which was not there before",
              "list in Transformed::frozen what it froze"};
  return {};
}

}  // namespace

Transformed NamedTransform::apply(Units& units, const TransformRun& run) const {
  const Parameters before = parameters_of(units);
  const NamedSeams seams(units);
  Transformed said = named("changed the model", [&] { return inner_->apply(units, run); });
  seams.name(units, author_);
  const auto [fault, hint] = fault_of(before, parameters_of(units), said);
  if (!fault.empty())
    throw Error(ErrorCode::plugin_failed, author_.file.string(),
                "the plugin '" + author_.name + "' " + author_.version +
                    " breaks a rule of ITransform::apply(): " + fault,
                hint);
  return said;
}

}  // namespace heddle::plugin
