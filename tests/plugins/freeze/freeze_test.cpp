// Parameters that `freeze_config:` excludes from training.
#include <gmock/gmock.h>

#include <deque>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "lib/run/model/transforms.h"
#include "lib/run/recipe/recipe.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Recipe read_freeze(const std::string& yaml) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  static std::deque<PluginRegistry> opened;  // transforms use objects of the registry
  Recipe recipe = read_recipe(config::read_text("model: {config: {model_type: llama}}\n" + yaml, "run.yaml"));
  recipe = with_plugin_sections(std::move(recipe), opened.emplace_back(std::move(plugins)));
  recipe.errors.raise();
  return recipe;
}

// Applies the section to the units.
void freeze(Units& units, const Recipe& recipe) {
  for (const ActiveTransform& one : make_transforms(recipe.sections, 0))
    (void)one.transform->apply(units, one.run);
}

Units llama(bool tied = false) {
  ModelConfig model;
  model.vocab_size = 11;
  model.hidden_size = 8;
  model.intermediate_size = 12;
  model.num_hidden_layers = 2;
  model.num_key_value_heads = model.num_attention_heads = 2;
  model.head_dim = 4;
  model.tie_word_embeddings = tied;
  return make_units(model, at::TensorOptions(at::kMeta).dtype(at::kFloat));
}

// Returns the names of trainable or of frozen parameters. A tied parameter appears once per use.
std::vector<std::string> names(Units& units, bool trainable) {
  std::vector<std::string> out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.trainable() == trainable) out.push_back(slot.name);
  return out;
}

TEST(Freeze, FreezesEmbeddingsByDefaultOnlyWithTheSection) {
  EXPECT_THAT(read_freeze("").sections, IsEmpty());
  EXPECT_THAT(read_freeze("freeze_config: null").sections, IsEmpty());
  Units units = llama();
  freeze(units, read_freeze("freeze_config: {}"));
  EXPECT_THAT(names(units, false), ElementsAre("model.embed_tokens.weight"));
}

TEST(Freeze, FreezesATiedEmbeddingInBothPlaces) {
  Units units = llama(true);
  freeze(units, read_freeze("freeze_config: {freeze_embeddings: true}"));
  EXPECT_THAT(names(units, false), ElementsAre("model.embed_tokens.weight", "model.embed_tokens.weight"));
}

// An embedding whose role is set by its traits. Its kind is a name of its family.
class Table : public Embedding {
 public:
  Table() : Embedding(11, 8, -1, {}, at::kMeta) {}
  std::string_view kind() const override { return "table"; }
};

class Output : public Module {
 public:
  Output() : projection_(8, 11, Linear::Bias::none, {}, at::kMeta) {
    add_child("table", projection_);
    add_child("loss", loss_);
  }
  std::string_view kind() const override { return "output"; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return loss_.of(x, projection_, batch); }

 private:
  Linear projection_;
  TokenLoss loss_;
};

TEST(Freeze, SelectsModulesByRole) {
  for (const bool language_model : {false, true}) {
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("first", "first", std::make_unique<Table>()));
    units.push_back(std::make_unique<ModuleUnit>("last", "last", std::make_unique<Output>()));
    freeze(units, read_freeze(std::string("freeze_config: {freeze_language_model: ") +
                              (language_model ? "true, freeze_embeddings: false}" : "false}")));
    EXPECT_THAT(names(units, false), ElementsAre("first.weight"));
  }
}

TEST(Freeze, KeepsTheHeadOfAFrozenLanguageModelTrainable) {
  Units units = llama();
  freeze(units, read_freeze("freeze_config: {freeze_language_model: true, freeze_embeddings: false}"));
  EXPECT_THAT(names(units, true), ElementsAre("lm_head.weight"));
}

TEST(Freeze, FreezesParametersThatPatternsMatch) {
  Units units = llama();
  freeze(
      units,
      read_freeze(
          R"(freeze_config: {freeze_embeddings: false, patterns: ['layers\.1\..*proj', '^model\.norm']})"));
  EXPECT_THAT(names(units, false),
              ElementsAre("model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
                          "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
                          "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
                          "model.layers.1.mlp.down_proj.weight", "model.norm.weight"));
}

TEST(Freeze, NamesMissingTowers) {
  EXPECT_THAT(read_freeze("freeze_config: {freeze_vision_tower: true, freeze_audio_tower: true}").not_built,
              ElementsAre("freeze_config.freeze_vision_tower: there are no models with a vision tower",
                          "freeze_config.freeze_audio_tower: there are no models with an audio tower"));
  EXPECT_THAT(read_freeze("freeze_config: {freeze_embeddings: false}").not_built, IsEmpty());
}

}  // namespace
}  // namespace heddle
