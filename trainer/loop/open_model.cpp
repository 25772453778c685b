// A model with random weights, or of a directory.
#include "trainer/loop/open_model.h"

#include <utility>

#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "trainer/models/pretrained.h"

namespace heddle {

JobModel open_model(const ModelSection& section, PluginRegistry& plugins,
                    std::vector<std::string>& warnings) {
  JobModel model;
  if (section.source == ModelSection::Source::pretrained) {
    Pretrained pretrained = open_pretrained(section.directory, plugins, section.overrides, warnings);
    model.spec = std::move(pretrained.spec);
    model.origin = std::move(pretrained.origin);
    model.tensors = std::move(pretrained.names);
    model.source = pretrained.source;
    model.directory = section.directory;
  } else {
    model.spec = section.config.is_map()
                     ? engine::read_model(section.config, plugins)
                     : engine::read_model(std::filesystem::path(section.config.as_text()), plugins);
  }
  const std::string dtype = !section.dtype.empty() ? section.dtype : model.spec->facts().dtype;
  model.dtype = dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  if (!model.source)
    model.origin.files["config.json"] =
        model.spec->config_json(model.dtype == at::kFloat ? "float32" : "bfloat16");
  return model;
}

std::filesystem::path place_of(const ModelSection& section) {
  if (section.source == ModelSection::Source::pretrained) return section.directory;
  return section.config.is_map() ? "" : section.config.as_text();
}

void warn_of_unused(const JobModel& model, const Units& units, std::vector<std::string>& warnings) {
  std::vector<std::string> names = checkpoint::unused(model.tensors, units, model.spec.get());
  if (names.empty()) return;
  const std::string count = std::to_string(names.size());
  const bool more = names.size() > 5;
  if (more) names.resize(5);
  warnings.push_back(model.directory.string() + ": the model has no place for " + count +
                     " of the tensors (" + text::join(names) + (more ? ", ..." : "") +
                     "); they are not loaded and not saved");
}

void check_weights(const JobModel& model, const Units& units) {
  if (!model.source) return;  // on meta a source reads nothing
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      Shard shard = whole_shard(slot, {});
      shard.tensor = *slot.tensor;
      model.source(shard);
    }
}

}  // namespace heddle
