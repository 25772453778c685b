// List of all groups, and look-up of their types and keys.
#include <algorithm>
#include <array>

#include "../config/keys.h"
#include "../config/model_type.h"
#include "heddle/base/error.h"

namespace heddle::llama {
namespace {

const std::array<const ModelGroup*, 5>& groups() {
  static const std::array<const ModelGroup*, 5> kGroups = {
      &dense_models(), &mixture_models(), &latent_models(), &gpt_oss_models(), &sigmoid_models()};
  return kGroups;
}

struct Place {
  const ModelGroup* group;
  const ModelType* type;
};

Place find_type(std::string_view model_type) {
  for (const ModelGroup* group : groups())
    for (const ModelType& type : group->types)
      if (type.name == model_type) return {group, &type};
  throw Error(ErrorCode::internal, "plugin llama",
              "model_type '" + std::string(model_type) + "' is not in any group");
}

// Returns the words of `types` separated by ", ".
std::string list_of(const std::string& types) {
  std::string out;
  for (const char letter : types) out += letter == ' ' ? std::string(", ") : std::string(1, letter);
  return out;
}

bool has(const Key& key, std::string_view model_type) {
  return key.types.empty() ||
         (" " + key.types + " ").find(" " + std::string(model_type) + " ") != std::string::npos;
}

}  // namespace

const ModelType& type_of(std::string_view model_type) {
  return *find_type(model_type).type;
}

std::vector<std::string> type_names() {
  std::vector<std::string> out;
  for (const ModelGroup* group : groups())
    for (const ModelType& type : group->types) out.push_back(type.name);
  return out;
}

std::vector<FieldInfo> keys_of(std::string_view model_type) {
  std::vector<FieldInfo> out = common_keys();
  for (const Key& key : find_type(model_type).group->keys)
    if (has(key, model_type)) out.push_back(key.info);
  return out;
}

std::vector<FieldInfo> table_of(const ModelGroup& group) {
  std::vector<FieldInfo> out;
  if (&group == groups().front()) out = common_keys();
  for (const Key& key : group.keys) {
    out.push_back(key.info);
    if (!key.types.empty()) out.back().help += " Only for " + list_of(key.types) + ".";
  }
  return out;
}

}  // namespace heddle::llama
