// How mixed precision and the scope of checkpointing are read and written.
#include "heddle/config/common_fields.h"

#include <algorithm>
#include <array>

#include "heddle/base/text.h"

namespace heddle {
namespace {

ConfigSchema<MixedPrecision> mixed_precision_schema() {
  return ConfigSchema<MixedPrecision>()
      .field("param_dtype", &MixedPrecision::param_dtype,
             "Dtype of whole parameters in compute; null: as stored.")
      .field("reduce_dtype", &MixedPrecision::reduce_dtype,
             "Dtype of gradients in sums over ranks; null: as computed.")
      .field("output_dtype", &MixedPrecision::output_dtype, "Dtype of what a unit returns; null: no cast.")
      .field("cast_forward_inputs", &MixedPrecision::cast_forward_inputs,
             "Cast a unit's inputs to param_dtype.");
}

Error scope_error(const Node& value, const std::string& text) {
  return Error(ErrorCode::config, value.where(), text);
}

// Appends the groups that one word names.
void add_groups(const Node& value, std::string word, std::vector<std::string>& groups) {
  static constexpr std::array<std::string_view, 5> kGroups = {"all", "audio", "language", "multimodal",
                                                              "vision"};
  word = text::lower(word);
  std::replace(word.begin(), word.end(), '-', '_');
  std::replace(word.begin(), word.end(), '+', ',');
  for (size_t from = 0; from <= word.size();) {
    const size_t comma = std::min(word.find(',', from), word.size());
    const std::string part = word.substr(from, comma - from);
    from = comma + 1;
    const size_t first = part.find_first_not_of(" \t\n");
    if (first == part.npos) continue;
    std::string group = part.substr(first, part.find_last_not_of(" \t\n") + 1 - first);
    if (group == "default" || group == "auto") group = "all";
    if (std::find(kGroups.begin(), kGroups.end(), group) == kGroups.end())
      throw scope_error(value,
                        "activation_checkpointing_scope must use only: all, audio, language, multimodal, "
                        "vision. Got '" +
                            part + "'.");
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
}

}  // namespace

MixedPrecision FieldType<MixedPrecision>::read(const Node& value) {
  return mixed_precision_schema().read(config::without_target(value, "MixedPrecisionPolicy"));
}

Node FieldType<MixedPrecision>::write(const MixedPrecision& value) {
  return mixed_precision_schema().write(value);
}

CheckpointingScope FieldType<CheckpointingScope>::read(const Node& value) {
  CheckpointingScope scope;
  if (value.is_null()) return scope;
  std::vector<std::string> groups;
  if (value.kind() == Node::Kind::text)
    add_groups(value, value.as_text(), groups);
  else if (!value.is_list())
    throw scope_error(value, "activation_checkpointing_scope must be a string or list of strings.");
  for (const Node& item : value.items()) {
    if (item.kind() != Node::Kind::text)
      throw scope_error(item, "activation_checkpointing_scope entries must be strings.");
    add_groups(item, item.as_text(), groups);
  }
  if (groups.empty()) return scope;
  if (groups.size() > 1 && std::find(groups.begin(), groups.end(), "all") != groups.end())
    throw scope_error(value, "activation_checkpointing_scope='all' cannot be combined with other scopes.");
  scope.groups = std::move(groups);
  return scope;
}

Node FieldType<CheckpointingScope>::write(const CheckpointingScope& value) {
  return FieldType<std::vector<std::string>>::write(value.groups);
}

std::string autocast_complaint(const DTypeWord& dtype) {
  if (dtype.word.empty() || dtype.word == "bfloat16" || dtype.word == "float16") return "";
  return "autocast_dtype must be bfloat16, float16 or null, got " + dtype.word;
}

}  // namespace heddle
