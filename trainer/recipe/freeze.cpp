// Reads `freeze_config:`.
#include <optional>
#include <regex>

#include "trainer/recipe/component.h"
#include "trainer/recipe/fields.h"
#include "trainer/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct Words {
  bool embeddings = true, language_model = false;
  std::optional<bool> vision, audio;
  std::vector<std::string> patterns;
};

const ConfigSchema<Words>& schema() {
  static const auto schema =
      ConfigSchema<Words>()
          .field("freeze_embeddings", &Words::embeddings, "The token embedding; a head tied to it as well.")
          .field("freeze_language_model", &Words::language_model, "All but the head of a model of text.")
          .field("freeze_vision_tower", &Words::vision, "The vision tower.")
          .later("freeze_vision_tower", "there are no models with a vision tower")
          .field("freeze_audio_tower", &Words::audio, "The audio tower.")
          .later("freeze_audio_tower", "there are no models with an audio tower")
          .field("patterns", &Words::patterns,
                 "Regular expressions: parameters whose names hold a match of one.");
  return schema;
}

}  // namespace

std::vector<FieldInfo> freeze_fields() {
  return schema().fields();
}

FreezeSection read_freeze(const Node& section, NotBuilt& not_built) {
  const Words words = schema().read(section);
  add_not_built(not_built, "freeze_config", schema(), words);
  for (size_t i = 0; i < words.patterns.size(); ++i) {
    try {
      std::regex{words.patterns[i]};
    } catch (const std::regex_error&) {
      throw Error(ErrorCode::config, section.find("patterns")->items()[i].where(),
                  "not a regular expression: '" + words.patterns[i] + "'");
    }
  }
  return {words.embeddings, words.language_model, words.patterns, section.where()};
}

}  // namespace heddle::recipe
