// Model families by model_type, their small models, and the kits of the kind `model`.
#include "families.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "../given_fields.h"
#include "heddle/base/text.h"
#include "heddle/model/config_keys.h"
#include "key_checks.h"
#include "model_kits.h"
#include "small_keys.h"

namespace heddle::kits {
namespace {

constexpr const char *kType = "model_type", *kText = "text_config";

constexpr int64_t kMostParameters = 50'000'000;

int64_t parameters_of(const OfferedModel& offered, const Node& keys) {
  int64_t parameters = 0;
  for (const auto& unit : read_model(offered, keys)->make_units(at::kMeta))
    for (const ParameterSlot& slot : unit->parameters()) parameters += slot.tensor->numel();
  return parameters;
}

bool has_key(const std::vector<FieldInfo>& table, const std::string& key) {
  return std::any_of(table.begin(), table.end(), [&](const FieldInfo& field) { return field.key == key; });
}

std::vector<std::string> types_of(const OfferedModel& offered) {
  std::vector<std::string> types = {offered.name};
  types.insert(types.end(), offered.aliases.begin(), offered.aliases.end());
  return types;
}

}  // namespace

Families::Families(const CheckedPlugin& plugin) : file_(plugin.file) {
  for (const plugin::ManifestOffer& offer : plugin.manifest.offers) {
    if (offer.kind != OfferedModel::kKind) continue;
    all_.push_back(plugin.registry.model(offer.name));
    table_.insert(table_.end(), all_.back()->fields.begin(), all_.back()->fields.end());
  }
}

const OfferedModel* Families::of(const std::string& model_type) const {
  for (const OfferedModel* each : all_) {
    const std::vector<std::string> types = types_of(*each);
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return each;
  }
  return nullptr;
}

std::string Families::list() const {
  std::vector<std::string> out;
  for (const OfferedModel* each : all_)
    for (std::string& type : types_of(*each)) out.push_back(std::move(type));
  return text::join(out);
}

std::vector<FieldInfo> Families::table_of(const OfferedModel& offered) const {
  std::vector<FieldInfo> out = offered.fields;
  for (const FieldInfo& field : table_)
    if (!has_key(offered.fields, field.key)) out.push_back(field);
  return out;
}

Node Families::small_keys(const OfferedModel& offered, const std::string& type, const Node& fields) const {
  const Node keys = fields.with(kType, Node::text(type));
  const bool has_text = has_key(offered.fields, kText) && keys.find(kText) == nullptr;
  Node small = has_text ? small_text(offered, keys) : kits::small_keys(offered, table_of(offered), keys);
  if (const int64_t parameters = parameters_of(offered, small); parameters > kMostParameters)
    throw NotRun{
        "its smallest model has " + std::to_string(parameters / 1'000'000) +
        " million parameters, too many to train here; set smaller sizes with --fields, and give sizes a "
        "type in the table"};
  return small;
}

Node Families::small_text(const OfferedModel& offered, const Node& fields) const {
  std::string why = "no family of the file can be its text_config";
  for (const OfferedModel* other : all_) {
    if (has_key(other->fields, kText)) continue;
    try {
      const Node text =
          kits::small_keys(*other, table_of(*other), Node::map({{kType, Node::text(other->name)}}));
      const Node keys = fields.with(kText, text);
      (void)read_model(offered, keys);
      return keys;
    } catch (const NotRun& refused) {
      why = refused.why;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      why = error.message();
    }
  }
  throw NotRun{"its text_config is refused; set another one with --fields: " + why};
}

Node Families::given(const KitOptions& options) const {
  const Node all = given_fields(options);
  Node out = all;
  for (const auto& [key, value] : all.entries())
    if (!has_key(table_, key)) out = out.without(key);
  return out;
}

std::string type_in_files(const Node& keys) {
  const Node* text = model::given(keys, kText);
  return model::text_or(text == nullptr || !text->is_map() ? keys : *text, kType, "");
}

namespace {

void check_model(const OfferedSchema& schema, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& offered = static_cast<const OfferedModel&>(schema);
  const Families families(plugin);
  const Node given = families.given(plugin.options);
  std::vector<Node> readable;  // of the types whose keys are accepted
  for (const std::string& type : types_of(offered)) {
    std::optional<Node> small;
    const auto keys = [&]() -> Node {
      if (!small) small = families.small_keys(offered, type, given);
      return *small;
    };
    run_type_kits({families, offered, type, keys}, attempt);
    if (small) readable.push_back(*small);
  }
  attempt.on_cpu("model '" + offered.name + "': read(): each key changes the model", [&] {
    if (readable.empty()) throw NotRun{"its default keys are refused; set other keys with --fields"};
    return acts_on_each_key(families, offered, readable);
  });
}

const KindKits kModel(OfferedModel::kKind, check_model);

}  // namespace
}  // namespace heddle::kits
