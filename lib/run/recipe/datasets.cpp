// Finds the plugin of each data set.
#include "lib/run/recipe/datasets.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/data/blend/blend_set.h"
#include "lib/data/tokens/token_files.h"

namespace heddle {
namespace {

const ConfigSchema<TextKeys>& text_schema() {
  using K = TextKeys;
  static const auto schema =
      ConfigSchema<K>()
          .field("tokenizer", &K::tokenizer,
                 "Tokenizer: a map with pretrained_model_name_or_path, a directory or a hub name. "
                 "Default: the model's.")
          .field("date", &K::date, "Date that a chat template sees, YYYY-MM-DD. Default: today.")
          .field("apply_split", &K::apply_split,
                 "Apply split, its slices and shuffle_seed to local JSON files too, of which NeMo AutoModel "
                 "takes every row.");
  return schema;
}

// Moves the keys of all sets of texts out of the section; the other keys belong to the plugin.
void take_text_keys(DatasetSection& section) {
  Node own = Node::map({}, section.section.mark(), section.section.path()), others = section.section;
  for (const FieldInfo& field : text_schema().fields())
    if (const Node* given = section.section.find(field.key)) {
      own = own.with(field.key, *given);
      others = others.without(field.key);
    }
  section.texts = text_schema().read(own);
  section.section = others;
}

// limit_dataset_samples and num_samples_limit apply to every data set: heddle limits a set that does not read
// them.
void take_limit(DatasetSection& section, const OfferedDataset& offered) {
  for (const char* key : {"limit_dataset_samples", "num_samples_limit"}) {
    const bool own = std::any_of(offered.fields.begin(), offered.fields.end(),
                                 [&](const FieldInfo& field) { return field.key == key; });
    const Node* given = own ? nullptr : section.section.find(key);
    if (given == nullptr) continue;
    if (!given->is_null()) {
      const int64_t most = given->as_integer();
      if (most <= 0)
        throw Error(ErrorCode::config, given->where(),
                    std::string(key) + " must be greater than 0 or null, got " + std::to_string(most));
      section.most_samples = std::min(most, section.most_samples.value_or(most));
    }
    section.section = section.section.without(key);
  }
}

std::vector<std::string> dataset_names(const PluginRegistry& plugins) {
  std::vector<std::string> names = plugins.names(OfferedDataset::kKind);
  names.emplace_back(kTokenFiles);
  names.emplace_back(kMegatronBlend);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name) {
  if (name == kTokenFiles) return &token_files();
  return name == kMegatronBlend ? &blend_files() : plugins.find<OfferedDataset>(name);
}

std::vector<FieldInfo> text_key_fields() {
  return text_schema().fields();
}

DatasetSection resolve_dataset(DatasetSection section, PluginRegistry& plugins,
                               std::vector<std::string>& not_built) {
  if (section.target == token_files().name) return section;  // read together with the recipe
  const Node& target = *section.section.find("_target_");
  const OfferedDataset* offered = find_dataset(plugins, section.target);
  if (offered == nullptr) {
    const std::vector<std::string> names = dataset_names(plugins);
    const std::string near = text::nearest(section.target, names);
    throw Error(ErrorCode::config, target.where(),
                "unknown component " + target.written() + "; available: " + text::join(names),
                near.empty() ? "set plugins: to the directory of the plugin that has your data set"
                             : "did you mean '" + near + "'?");
  }
  section.section = section.section.without("_target_");
  take_limit(section, *offered);
  if (offered->texts) take_text_keys(section);
  const Resolved read = offered->resolve(section.section);
  for (const std::string& one : read.not_built) not_built.push_back(section.section.path() + "." + one);
  const Node* length = offered->length_key.empty() ? nullptr : read.values.find(offered->length_key);
  if (length == nullptr || length->is_null()) return section;
  section.sequence_length = length->as_integer();
  section.length_key = offered->length_key;
  const Node* given = section.section.find(offered->length_key);
  section.length_where = given != nullptr ? given->where() : section.where;
  return section;
}

}  // namespace heddle
