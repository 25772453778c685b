// Distributes the caller's fields: a key belongs to each offer whose table has it.
#include "given_fields.h"

#include <algorithm>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/plugin/dataset.h"

namespace heddle::kits {
namespace {

bool has(const OfferedSchema& offered, const std::string& key) {
  return std::any_of(offered.fields.begin(), offered.fields.end(),
                     [&](const FieldInfo& field) { return field.key == key; });
}

// Returns the offers whose kits read fields.
std::vector<const OfferedSchema*> takers(const CheckedPlugin& plugin) {
  std::vector<const OfferedSchema*> out;
  for (const plugin::ManifestOffer& offer : plugin.manifest.offers)
    if (KindKits::takes_fields(offer.kind)) out.push_back(plugin.registry.find(offer.kind, offer.name));
  return out;
}

bool one_has(const std::vector<const OfferedSchema*>& offers, const std::string& key) {
  return std::any_of(offers.begin(), offers.end(), [&](const auto* offered) { return has(*offered, key); });
}

// Returns the keys of all tables, and the keys that the engine reads for every text data set.
std::vector<std::string> known_keys(const std::vector<const OfferedSchema*>& offers) {
  std::vector<std::string> out;
  for (const OfferedSchema* offered : offers) {
    for (const FieldInfo& field : offered->fields) out.push_back(field.key);
    const auto* set = dynamic_cast<const OfferedDataset*>(offered);
    if (set != nullptr && set->texts) out.insert(out.end(), {"tokenizer", "date", "apply_split"});
  }
  return out;
}

}  // namespace

Node given_fields(const KitOptions& options) {
  Node given = config::read_text(options.fields, kFieldsOption);
  if (given.is_null()) return Node::map({});
  if (!given.is_map())
    throw Error(ErrorCode::config, kFieldsOption, "expected a map, got " + given.written(),
                "write it as YAML: '{key: value}'");
  return given;
}

Node fields_of(const OfferedSchema& offered, const CheckedPlugin& plugin) {
  const std::vector<const OfferedSchema*> all = takers(plugin);
  const Node given = given_fields(plugin.options);
  Node out = given;
  for (const auto& [key, value] : given.entries())
    if (!has(offered, key) && one_has(all, key)) out = out.without(key);
  return out;
}

void check_given_fields(const CheckedPlugin& plugin) {
  const Node given = given_fields(plugin.options);
  if (given.entries().empty()) return;
  const std::vector<std::string> known = known_keys(takers(plugin));
  if (known.empty())
    throw Error(ErrorCode::config, kFieldsOption, "no offer of this file is checked with fields",
                "remove the option");
  for (const auto& [key, value] : given.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = text::nearest(key, known);
    throw Error(ErrorCode::config, kFieldsOption,
                "unknown key '" + key + "': no offer of this file has this field",
                near.empty() ? "available keys: " + text::join(known) : "did you mean " + near + "?");
  }
}

}  // namespace heddle::kits
