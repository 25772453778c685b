// A model on disk, of either kind.
#include "trainer/models/pretrained.h"

#include <memory>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/sharded/sharded_source.h"

namespace heddle {

Pretrained open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins) {
  Pretrained out;
  out.place = find_model(path);
  const ModelPlace& place = out.place;
  out.spec = engine::read_model(place.notes / "config.json", plugins);
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
  return out;
}

}  // namespace heddle
