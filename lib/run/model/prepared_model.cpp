// A model with random weights, or of a directory.
#include "lib/run/model/prepared_model.h"

#include <ATen/core/TensorBody.h>

#include <utility>

#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/sharded/sharded_source.h"
#include "lib/run/model/freeze.h"
#include "lib/run/model/named_place.h"
#include "lib/run/model/overridden.h"

namespace heddle {
namespace {

at::ScalarType dtype_of(const std::string& word) {
  return word == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

// The config.json that a section names: its path, or that of a model.
std::filesystem::path config_file(const std::filesystem::path& given) {
  const std::filesystem::path place = named_place(given, Named::model);
  std::error_code ignored;
  if (std::filesystem::is_directory(place, ignored)) return find_model(place).notes / "config.json";
  if (!std::filesystem::exists(place, ignored))
    if (const std::string hint = named_place_hint(given, Named::model); !hint.empty())
      throw Error(ErrorCode::input, given.string(), "is not there", hint);
  return place;
}

PreparedModel with_random_weights(const ModelSection& section, PluginRegistry& plugins) {
  PreparedModel out;
  if (section.config.is_map()) {
    out.spec = engine::read_model(section.config, plugins);
    return out;
  }
  const std::filesystem::path file = config_file(section.config.as_text());
  out.spec = section.overrides.empty() ? engine::read_model(file, plugins)
                                       : read_with_keys(file, section.overrides.keys, plugins);
  return out;
}

}  // namespace

Units PreparedModel::make(c10::Device device) const {
  Units units = spec->make_units(at::TensorOptions().device(device).dtype(dtype));
  for (const UnitsTransform& transform : transforms) transform(units);
  return units;
}

PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins) {
  std::vector<std::string> none;
  return open_pretrained(path, plugins, {}, none);
}

PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                              const ConfigOverrides& overrides, std::vector<std::string>& warnings) {
  PreparedModel out;
  out.directory = path;
  out.place = find_model(path);
  const ModelPlace& place = out.place;
  const std::filesystem::path file = place.notes / "config.json";
  out.spec = overrides.empty() ? engine::read_model(file, plugins)
                               : read_overridden(file, overrides, plugins, warnings);
  out.dtype = dtype_of(out.spec->facts().dtype);
  if (place.kind == ModelPlace::Kind::hugging_face) {
    const auto weights = std::make_shared<const HfWeights>(place.weights);
    out.origin = checkpoint::read_origin(place.weights, *weights);
    out.tensors = weights->names();
    out.source = checkpoint::hf_source(place.weights, weights, out.spec);
  } else {
    out.origin = checkpoint::kept_origin(place.notes);
    for (const auto& [name, tensor] :
         checkpoint::read_manifest(place.weights / checkpoint::kManifest).tensors)
      out.tensors.push_back(name);
    out.source = checkpoint::sharded_source(place.weights, place.optimizer, out.spec);
  }
  if (overrides.exported) add_to_config(out.origin.files["config.json"], overrides.keys);
  return out;
}

PreparedModel prepare_model(const ModelSection& section, const std::optional<FreezeSection>& freezing,
                            PluginRegistry& plugins, std::vector<std::string>& warnings) {
  PreparedModel model = section.source == ModelSection::Source::pretrained
                            ? open_pretrained(section.directory, plugins, section.overrides, warnings)
                            : with_random_weights(section, plugins);
  const std::string stored = model.spec->facts().dtype;
  model.dtype = dtype_of(!section.dtype.empty() ? section.dtype
                         : !stored.empty()      ? stored
                                                : section.dtype_without_word);
  if (!model.source)
    model.origin.files["config.json"] =
        model.spec->config_json(model.dtype == at::kFloat ? "float32" : "bfloat16");
  if (freezing) model.transforms.push_back([section = *freezing](Units& units) { freeze(units, section); });
  return model;
}

std::filesystem::path place_of(const ModelSection& section) {
  if (section.source == ModelSection::Source::pretrained) return section.directory;
  return section.config.is_map() ? "" : section.config.as_text();
}

void warn_of_unused(const PreparedModel& model, const Units& units, std::vector<std::string>& warnings) {
  std::vector<std::string> names = checkpoint::unused(model.tensors, units, model.spec.get());
  if (names.empty()) return;
  const std::string count = std::to_string(names.size());
  const bool more = names.size() > 5;
  if (more) names.resize(5);
  warnings.push_back(model.directory.string() + ": the model has no place for " + count +
                     " of the tensors (" + text::join(names) + (more ? ", ..." : "") +
                     "); they are not loaded and not saved");
}

void check_weights(const PreparedModel& model, const Units& units) {
  if (!model.source) return;  // on meta a source reads nothing
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      Shard shard = whole_shard(slot, {});
      shard.tensor = *slot.tensor;
      model.source(shard);
    }
}

}  // namespace heddle
