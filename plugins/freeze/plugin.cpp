// freeze_config: which parameters of a model do not train. Names first, then every slot of each name: a tied
// parameter has several.
#include <algorithm>
#include <optional>
#include <set>

#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"

namespace heddle::freeze {
namespace {

using Names = std::set<std::string>;

struct Config {
  bool embeddings = true, language_model = false;
  std::optional<bool> vision, audio;
  std::vector<std::string> patterns;
};

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("freeze_embeddings", &Config::embeddings,
             "Freeze the token embedding, and a head that is tied to it. The default with patterns too; "
             "set false to train it.")
      .field("freeze_language_model", &Config::language_model, "Freeze everything except the head.")
      .field("freeze_vision_tower", &Config::vision, "Freeze the vision tower.")
      .later("freeze_vision_tower", "there are no models with a vision tower",
             [](const Config& given) { return !given.vision.value_or(false); })
      .field("freeze_audio_tower", &Config::audio, "Freeze the audio tower.")
      .later("freeze_audio_tower", "there are no models with an audio tower",
             [](const Config& given) { return !given.audio.value_or(false); })
      .field("patterns", &Config::patterns,
             "Regular expressions of parameters to freeze: those whose names contain a match.",
             Check{"", transform::check_expressions});
}

void for_each_module(const Units& units, const std::function<void(Module&)>& visit) {
  for (const auto& unit : units)
    if (unit->module() != nullptr)
      unit->module()->visit("", [&](const std::string&, Module& module) { visit(module); });
}

// The names of the parameters that lie in these tensors, or of all others.
Names of_tensors(const Units& units, const std::set<const at::Tensor*>& tensors, bool inside) {
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (tensors.contains(slot.tensor) == inside) names.insert(slot.name);
  return names;
}

Names of_embeddings(const Units& units) {
  std::set<const at::Tensor*> tensors;
  for_each_module(units, [&](Module& module) {
    if (module.traits().role != Role::embedding) return;
    for (const ParameterSlot& slot : module.slots()) tensors.insert(slot.tensor);
  });
  return of_tensors(units, tensors, true);
}

// Everything but the head of its own: the projection beside the loss.
Names of_language_model(const Units& units) {
  std::set<const at::Tensor*> head;
  for_each_module(units, [&](Module& module) {
    const auto& children = module.children();
    if (std::none_of(children.begin(), children.end(),
                     [](const auto& child) { return child.second->traits().role == Role::loss; }))
      return;
    for (const auto& [name, child] : children)
      if (child->traits().role == Role::projection)
        for (const ParameterSlot& slot : child->slots()) head.insert(slot.tensor);
  });
  return of_tensors(units, head, false);
}

class Freeze : public ITransform {
 public:
  explicit Freeze(Config config) : config_(std::move(config)) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    const Names names = named(units, run.where);
    bool trains = false;
    Names frozen;
    for (const auto& unit : units)
      for (ParameterSlot& slot : unit->parameters()) {
        if (slot.trainable() && names.contains(slot.name)) {
          slot.tensor->set_requires_grad(false);
          frozen.insert(slot.name);
        }
        trains = trains || slot.trainable();
      }
    if (!trains)
      throw Error(ErrorCode::config, run.where, "nothing is left to train",
                  "freeze less; a head that is tied to the embedding is frozen with it");
    Transformed out;
    out.frozen.assign(frozen.begin(), frozen.end());
    if (config_.embeddings)
      out.note = "the token embedding is among them: freeze_config.freeze_embeddings false trains it";
    return out;
  }

  std::string setting() const override {
    const auto word = [](bool value) { return std::string(value ? "true" : "false"); };
    std::string out =
        "embeddings " + word(config_.embeddings) + ", language_model " + word(config_.language_model);
    for (const std::string& pattern : config_.patterns) out += ", " + pattern;
    return out;
  }

 private:
  Names named(const Units& units, const std::string& where) const {
    Names names;
    if (config_.embeddings) names.merge(of_embeddings(units));
    if (config_.language_model) names.merge(of_language_model(units));
    for (const std::string& pattern : config_.patterns)
      for (const std::string& name : transform::parameters_matching(units, pattern, where))
        names.insert(name);
    return names;
  }

  Config config_;
};

}  // namespace
}  // namespace heddle::freeze

HEDDLE_PLUGIN("freeze", "0.1.0", "transform freeze_config") {
  using namespace heddle::freeze;
  plugin.transform<Freeze>("freeze_config", schema());
}
