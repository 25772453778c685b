// The table of kinds.
#include "core/plugin/kinds.h"

#include <algorithm>
#include <type_traits>

#include "core/plugin/named/named_dataset.h"
#include "core/plugin/named/named_metrics.h"
#include "core/plugin/named/named_optimizer.h"
#include "core/plugin/named/named_plugins.h"
#include "core/plugin/named/named_transform.h"
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
