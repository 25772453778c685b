// Puts the sections of a recipe together.
#include "trainer/recipe/recipe.h"

#include <map>

#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"
#include "trainer/recipe/component.h"
#include "trainer/recipe/readers.h"
#include "trainer/recipe/section_names.h"

namespace heddle {
namespace {

// Sections of AutoModel's recipes that mean something else here, or nothing.
const std::map<std::string, std::string> kElsewhere = {
    {"rng", "use seed: N at the top"},
    {"wandb", "leave it out: metrics go to training.jsonl"},
    {"mlflow", "leave it out: metrics go to training.jsonl"},
    {"comet", "leave it out: metrics go to training.jsonl"},
    {"peft", "leave it out: adapters are not built yet, and every parameter trains (see freeze_config)"},
    {"validation_dataloader", "leave it out: validation reads its samples in the order of the files"},
    {"benchmark", "leave it out: training.jsonl has the time of each step"}};

void check_keys(const Node& root) {
  if (!root.is_map() && !root.is_null())
    throw Error(ErrorCode::config, root.where(), "expected a map of sections, got " + root.written());
  for (const auto& [key, value] : root.entries()) {
    if (is_section(key)) continue;
    const std::vector<std::string> names(kSections.begin(), kSections.end());
    const std::string nearest = text::nearest(key, names);
    const auto elsewhere = kElsewhere.find(key);
    throw Error(ErrorCode::config, value.where(), "unknown key '" + key + "'",
                root.find("model_type") != nullptr
                    ? "this is a model's config.json; a configuration names it: model: {config: PATH}"
                : elsewhere != kElsewhere.end() ? elsewhere->second
                : nearest.empty()               ? "the sections are: " + text::join(names)
                                                : "did you mean '" + nearest + "'?");
  }
}

// The name of AutoModel's recipe, or a map with it.
void read_name(const Node& root, std::vector<std::string>& not_built) {
  static const std::vector<std::string> kNames = {"TrainFinetuneRecipeForNextTokenPrediction",
                                                  "BenchmarkingRecipeForNextTokenPrediction",
                                                  "KnowledgeDistillationRecipeForNextTokenPrediction"};
  const Node* name = root.find("recipe");
  if (name != nullptr && name->is_map())
    name = name->without("_target_").size() == 0 ? name->find("_target_") : name;
  if (name == nullptr || name->is_null()) return;
  if (config::component_of(*name, kNames) != kNames.front())
    not_built.push_back("recipe: benchmarks and distillation are not built yet");
}

// A validation set with samples of unequal length and no row length of its own is packed as the training
// data.
bool is_packed(const Node& section, const PackedSection& packed) {
  const auto given = [&](const char* key) {
    const Node* value = section.find(key);
    return value != nullptr && !value->is_null();
  };
  return packed.rules.size > 0 && given("lengths") && !given("seq_len");
}

void read_data(const Node& root, Recipe& recipe) {
  recipe.packed = recipe::read_packed(recipe::section_of(root, "packed_sequence"), recipe.not_built);
  recipe.packed_validation = recipe.packed;
  recipe.packed_validation.rules.max_packs.reset();
  if (const Node* dataset = root.find("dataset"); dataset != nullptr && !dataset->is_null())
    recipe.dataset = recipe::read_dataset(*dataset, recipe.packed, recipe.not_built);
  for (const auto& [key, section] : root.entries()) {
    if (!key.starts_with("validation_dataset") || section.is_null()) continue;
    if (key == "validation_dataset_default" && root.find("validation_dataset") != nullptr)
      throw Error(ErrorCode::config, section.where(), "validation_dataset is the set 'default' already",
                  "give this one another name");
    const bool packed = is_packed(section, recipe.packed);
    recipe.validation.push_back(
        recipe::read_dataset(section, packed ? recipe.packed_validation : PackedSection{}, recipe.not_built));
    if (key.size() > kNamedValidation.size())
      recipe.validation.back().name = key.substr(kNamedValidation.size());
  }
  recipe.shuffle = recipe::read_dataloader(recipe::section_of(root, "dataloader"), recipe.not_built);
}

}  // namespace

Recipe read_recipe(const Node& root) {
  check_keys(root);
  Recipe recipe;
  if (const Node* seed = root.find("seed"); seed != nullptr && !seed->is_null()) {
    recipe.seed = seed->as_integer();
    if (recipe.seed < 0)
      throw Error(ErrorCode::config, seed->where(), "seed must be 0 or more, got " + seed->written());
  }
  read_name(root, recipe.not_built);
  recipe.steps = recipe::read_steps(recipe::section_of(root, "step_scheduler"), recipe.not_built);
  recipe.model = recipe::read_model(recipe::section_of(root, "model"), recipe.not_built);
  if (const Node* section = root.find("freeze_config"); section != nullptr && !section->is_null())
    recipe.freeze = recipe::read_freeze(*section, recipe.not_built);
  read_data(root, recipe);
  recipe.optimizer = recipe::read_optimizer(recipe::section_of(root, "optimizer"), recipe.not_built);
  if (const Node* section = root.find("lr_scheduler"); section != nullptr && !section->is_null())
    recipe.lr_schedule = recipe::read_lr_schedule(*section, recipe.not_built);
  recipe::read_loss(recipe::section_of(root, "loss_fn"), recipe.not_built);
  const Node* clipping = root.find("clip_grad_norm");
  if (clipping != nullptr && clipping->is_null())
    recipe.max_norm = std::nullopt;
  else if (clipping != nullptr)
    std::tie(recipe.max_norm, recipe.norm_type) = recipe::read_clipping(*clipping);
  recipe.checkpoint = recipe::read_checkpoint(recipe::section_of(root, "checkpoint"), recipe.not_built);
  recipe.checkpoint.best_set = recipe::best_set(recipe::section_of(root, "checkpoint"),
                                                recipe.checkpoint.best_metric_key, recipe.validation);
  recipe::read_plugins(recipe::section_of(root, "plugins"));
  return recipe;
}

PluginRegistry open_plugins(const Node& root, const Log& log) {
  const PluginsSection section = recipe::read_plugins(recipe::section_of(root, "plugins"));
  const std::vector<std::filesystem::path> places(section.places.begin(), section.places.end());
  PluginRegistry plugins(plugin::search_path(places), log);
  for (const std::string& one : section.load) plugins.load(one);
  return plugins;
}

}  // namespace heddle
