// Reads `freeze_config:`.
#include <optional>

#include "core/base/pattern.h"
#include "lib/run/recipe/component.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct FreezeFields {
  bool embeddings = true, language_model = false;
  std::optional<bool> vision, audio;
  std::vector<std::string> patterns;
};

const ConfigSchema<FreezeFields>& freeze_schema() {
  static const auto schema =
      ConfigSchema<FreezeFields>()
          .field("freeze_embeddings", &FreezeFields::embeddings,
                 "The token embedding, and a head tied to it; true unless it is given as false, beside "
                 "patterns too.")
          .field("freeze_language_model", &FreezeFields::language_model,
                 "All but the head of a model of text.")
          .field("freeze_vision_tower", &FreezeFields::vision, "The vision tower.")
          .later("freeze_vision_tower", "there are no models with a vision tower")
          .field("freeze_audio_tower", &FreezeFields::audio, "The audio tower.")
          .later("freeze_audio_tower", "there are no models with an audio tower")
          .field("patterns", &FreezeFields::patterns,
                 "Regular expressions: parameters whose names hold a match of one, besides the embedding.");
  return schema;
}

}  // namespace

std::vector<FieldInfo> freeze_fields() {
  return freeze_schema().fields();
}

FreezeSection read_freeze(const Node& section, NotBuilt& not_built) {
  const FreezeFields words = freeze_schema().read(section);
  add_not_built(not_built, "freeze_config", freeze_schema(), words);
  for (size_t i = 0; i < words.patterns.size(); ++i)
    text::Pattern(words.patterns[i], section.find("patterns")->items()[i].where());
  return {words.embeddings, words.language_model, words.patterns, section.where()};
}

}  // namespace heddle::recipe
