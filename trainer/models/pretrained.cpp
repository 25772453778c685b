// A model on disk, of either kind.
#include "trainer/models/pretrained.h"

#include <memory>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/sharded/sharded_source.h"
#include "trainer/models/overridden.h"

namespace heddle {

Pretrained open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins) {
  std::vector<std::string> none;
  return open_pretrained(path, plugins, {}, none);
}

Pretrained open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                           const ConfigOverrides& overrides, std::vector<std::string>& warnings) {
  Pretrained out;
  out.place = find_model(path);
  const ModelPlace& place = out.place;
  const std::filesystem::path file = place.notes / "config.json";
  out.spec = overrides.empty() ? engine::read_model(file, plugins)
                               : read_overridden(file, overrides, plugins, warnings);
  if (place.kind == ModelPlace::Kind::hugging_face) {
    const auto weights = std::make_shared<const HfWeights>(place.weights);
    out.origin = checkpoint::read_origin(place.weights, *weights);
    out.names = weights->names();
    out.source = checkpoint::hf_source(place.weights, weights, out.spec);
  } else {
    out.origin = checkpoint::kept_origin(place.notes);
    for (const auto& [name, tensor] :
         checkpoint::read_manifest(place.weights / checkpoint::kManifest).tensors)
      out.names.push_back(name);
    out.source = checkpoint::sharded_source(place.weights, place.optimizer, out.spec);
  }
  if (overrides.exported) add_to_config(out.origin.files["config.json"], overrides.keys);
  return out;
}

}  // namespace heddle
