// Checks that keys that change the parameters of a model also change its signature.
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "key_checks.h"
#include "lib/testing/whole_tensors.h"
#include "small_keys.h"

namespace heddle::kits {
namespace {

using Shapes = std::map<std::string, std::string>;  // by parameter

constexpr size_t kMostUnits = 12;  // larger models give no further information

Shapes shapes_of(const Units& units) {
  Shapes out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      std::ostringstream text;
      text << slot.tensor->sizes();
      out[slot.name] = text.str();
    }
  return out;
}

// Returns the first difference, "'lm_head.weight' is [29, 14] and not [29, 16]", or "".
std::string changed_parameter(const Shapes& got, const Shapes& want) {
  for (const auto& [name, sizes] : want) {
    const auto here = got.find(name);
    if (here == got.end()) return "'" + name + "' is missing";
    if (here->second != sizes) return "'" + name + "' is " + here->second + " and not " + sizes;
  }
  for (const auto& [name, sizes] : got)
    if (want.count(name) == 0) return "'" + name + "' is added";
  return "";
}

}  // namespace

std::string changes_its_signature(const Families& families, const OfferedModel& offered, const Node& keys) {
  const auto plain = read_model(offered, keys);
  const Shapes shapes = shapes_of(plain->make_units(at::kMeta));
  const auto signature = plain->signature();
  std::set<std::string> changing;
  Findings findings;
  const auto check = [&](const FieldInfo& field) {
    for (const Node& other : other_values(field, value_of(field, keys))) {
      std::string fault;
      try {
        const auto spec = read_model(offered, keys.with(field.key, other));
        const Units units = spec->make_units(at::kMeta);
        if (units.size() > kMostUnits) continue;
        fault = changed_parameter(shapes_of(units), shapes);
        if (!fault.empty()) changing.insert(field.key);
        if (fault.empty() || spec->signature() != signature) continue;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::plugin_failed) throw;
        continue;  // the value is refused together with the other keys
      }
      found("the key '" + field.key + "' changes parameters but not the signature: with " + field.key + ": " +
            other.written() + " " + fault + ", so a run would resume from a checkpoint of another model");
    }
  };
  for (const FieldInfo& field : families.table())
    if (field.key != "model_type") findings.attempt([&] { check(field); });
  findings.raise();
  return std::to_string(changing.size()) + " keys change parameters";
}

}  // namespace heddle::kits
