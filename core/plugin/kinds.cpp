// The table of kinds.
#include "core/plugin/kinds.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <vector>

#include "core/parallel/features.h"
#include "core/plugin/named_plugins.h"
#include "heddle/base/text.h"
#include "heddle/plugin/dataset.h"

namespace heddle {

// Out of line: anchors the vtables.
OfferedSchema::~OfferedSchema() = default;
IMetrics::~IMetrics() = default;

namespace plugin {
namespace {

// A maker that never returns null and whose product carries the plugin's name.
template <class Named, class Make>
Make named(const Author& author, const std::string& name, const std::string& thing, const Make& make) {
  if (!make) return make;
  return [author, name, thing, make](const auto&... section) {
    return attributed(author, "made " + thing, [&]() -> typename Make::result_type {
      auto made = make(section...);
      if (!made) throw_named(author, "made " + thing, "it gave a null pointer");
      if constexpr (std::is_constructible_v<Named, Author, std::string, decltype(made)>)
        return std::make_unique<Named>(author, name, std::move(made));
      else
        return std::make_unique<Named>(author, std::move(made));
    });
  };
}

enum class Fields {
  of_schema,    // read from YAML, with defaults that are read back
  of_own_keys,  // listed, and read by the plugin itself
  none
};

template <class Offered, Fields fields>
void inspect_kind(const OfferChecks& checks, const std::string& thing, const OfferedSchema& schema) {
  const auto& offered = static_cast<const Offered&>(schema);
  if constexpr (fields == Fields::of_own_keys) checks.fields(thing, offered);
  if constexpr (fields == Fields::of_schema) checks.schema(thing, offered);
  if constexpr (requires { offered.needs; }) checks.needs(thing, offered.needs);
  if constexpr (requires { offered.refuses; }) checks.refusals(thing, offered.refuses);
  if constexpr (std::is_same_v<Offered, OfferedStrategy>) checks.no_axes(thing, offered.needs);
  if constexpr (std::is_same_v<Offered, OfferedOptimizer>) checks.no_common_keys(thing, offered);
  if constexpr (requires { offered.make; }) checks.maker(thing, !offered.make, offered.not_built);
}

template <class Offered, class Named>
void name_kind(OfferedSchema& schema, const Author& author) {
  if constexpr (!std::is_void_v<Named>) {
    auto& offered = static_cast<Offered&>(schema);
    offered.make = named<Named>(
        author, offered.name, std::string("the ") + Offered::kKind + " '" + offered.name + "'", offered.make);
  }
}

// Named: the wrapper of what the kind makes; void: it makes nothing.
template <class Offered, class Named, Fields fields = Fields::of_schema>
constexpr Kind kind() {
  return {Offered::kKind, inspect_kind<Offered, fields>, name_kind<Offered, Named>};
}

constexpr Kind kKinds[] = {
    kind<OfferedStrategy, NamedStrategy>(),
    kind<OfferedParallelizer, NamedParallelizer>(),
    kind<OfferedSchedule, NamedSchedule, Fields::none>(),
    kind<OfferedSection, void>(),
    kind<OfferedDevice, NamedDevice, Fields::none>(),
    kind<OfferedPlan, void>(),
    kind<OfferedModel, NamedModelFamily, Fields::of_own_keys>(),
    kind<OfferedOptimizer, NamedOptimizer>(),
    kind<OfferedTransform, NamedTransform>(),
    kind<OfferedMetrics, NamedMetrics>(),
    kind<OfferedDataset, NamedDataset>(),
};

}  // namespace

std::span<const Kind> kinds() {
  return kKinds;
}

const Kind* kind_of(std::string_view word) {
  const auto found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.word == word; });
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace plugin

}  // namespace heddle

namespace heddle::plugin {

void OfferChecks::refuse(const std::string& why, const std::string& hint) const {
  throw Error(ErrorCode::plugin_failed, author_.file.string(),
              "invalid plugin '" + author_.name + "' " + author_.version + ": " + why, hint);
}

void OfferChecks::fields(const std::string& thing, const OfferedSchema& offered) const {
  for (const FieldInfo& field : offered.fields) {
    if (field.key.empty() || field.type.empty())
      refuse("a field of " + thing + " has no key or no type", "name it in the schema");
    if (field.help.empty())
      refuse("the field '" + field.key + "' of " + thing + " has no help", "say in the schema what it does");
  }
}

void OfferChecks::schema(const std::string& thing, const OfferedSchema& offered) const {
  fields(thing, offered);
  if (!offered.resolve) refuse(thing + " has no schema", "pass a ConfigSchema when you offer it");
  defaults(thing, offered);
}

void OfferChecks::needs(const std::string& thing, const Needs& needs) const {
  AxisTable table;
  try {
    table.add(needs.new_axes, needs.new_views, thing);
  } catch (const Error& error) {
    refuse(error.message(), error.hint());
  }
  std::set<std::string> axes;
  for (const std::string& axis : needs.axes) {
    if (!axes.insert(axis).second)
      refuse(thing + " needs the axis '" + axis + "' twice", "list each axis once");
    known_axis(thing, axis, table);
  }
  for (const std::string& word : needs.may_use)
    if (std::find(kFeatures.begin(), kFeatures.end(), word) == kFeatures.end())
      refuse(thing + " may use '" + word + "', and core has no such feature",
             "words of may_use: " + text::join(std::vector<std::string>(kFeatures.begin(), kFeatures.end())));
  for (const std::string& axis : needs.after) known_axis(thing, axis, table);
  refusals(thing, needs.refuses, table);
  if (needs.sizes_rule)
    attributed(
        author_, "checked sizes", [&] { return needs.sizes_rule(Sizes{}); }, Keep::nothing);
}

void OfferChecks::refusals(const std::string& thing, const std::vector<Refusal>& refuses,
                           const AxisTable& table) const {
  for (const Refusal& refusal : refuses) {
    known_axis(thing, refusal.axis, table);
    if (refusal.text.empty())
      refuse(thing + " refuses the axis '" + refusal.axis + "' without a word", "say why in Refusal::text");
  }
}

// An axis is declared by the parallelizer that splits along it.
void OfferChecks::no_axes(const std::string& thing, const Needs& needs) const {
  if (!needs.new_axes.empty() || !needs.new_views.empty() || !needs.after.empty())
    refuse(thing + " sets new_axes, new_views or after, which are fields of a parallelizer's needs",
           "offer a parallelizer that has them");
}

void OfferChecks::no_common_keys(const std::string& thing, const OfferedOptimizer& offered) const {
  const auto has = [&](const std::string& key) {
    return std::any_of(offered.fields.begin(), offered.fields.end(),
                       [&](const FieldInfo& field) { return field.key == key; });
  };
  for (const char* key : OfferedOptimizer::kCommonKeys)
    if (has(key))
      refuse(thing + " has a field '" + key + "', which is read for every optimizer",
             "leave it out of the schema: OptimizerUpdate and TrainedShard have its value");
  for (const std::string& key : offered.no_effect)
    if (!has(key))
      refuse(thing + " names '" + key + "' in no_effect, and has no such field", "name a key of the schema");
}

void OfferChecks::maker(const std::string& thing, bool is_missing, const std::string& not_built) const {
  if (is_missing && not_built.empty()) refuse(thing + " has no maker", "offer a class that can be made");
}

void OfferChecks::known_axis(const std::string& thing, const std::string& axis,
                             const AxisTable& table) const {
  std::vector<std::string> known;
  for (const AxisInfo& info : table.axes())
    if (info.kind != AxisKind::joined) known.push_back(info.name);
  if (std::find(known.begin(), known.end(), axis) != known.end()) return;
  refuse(thing + " names the axis '" + axis + "', which the engine does not know",
         "use " + text::join(known) + ", or declare it in a parallelizer");
}

// The defaults, written and read again, must be allowed and stay the same.
void OfferChecks::defaults(const std::string& thing, const OfferedSchema& offered) const {
  try {
    const Node values = offered.resolve(Node::map({})).values;
    if (!(offered.resolve(values).values == values))
      refuse("the defaults of " + thing + " change when they are written and read again",
             "let FieldType<T>::read and write agree");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
    refuse("the schema of " + thing + " does not allow its own defaults: " + error.message(),
           "give the struct initialisers that are inside the ranges and rules");
  } catch (...) {
    attributed(
        author_, "read the defaults of " + thing, [] { throw; }, Keep::nothing);
  }
}

}  // namespace heddle::plugin
