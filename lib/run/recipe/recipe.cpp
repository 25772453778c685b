// Reads a recipe section by section.
#include "lib/run/recipe/recipe.h"

#include <algorithm>
#include <iterator>

#include "heddle/config/common_fields.h"
#include "lib/data/section_keys.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/recipe/benchmark.h"
#include "lib/run/recipe/datasets.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/section_names.h"

namespace heddle {
namespace {

// Returns the sections that heddle does not read itself. For another kind of file, such as a model's
// config.json, only the first unknown key is reported.
std::vector<Node::Entry> other_sections(const Node& root) {
  std::vector<Node::Entry> out;
  for (const auto& [key, value] : root.entries()) {
    if (is_section(key)) continue;
    if (root.find("model_type") != nullptr) throw unknown_section(root, key, value, {});
    out.emplace_back(key, value);
  }
  return out;
}

// Recipe that needs the section teacher_model.
constexpr const char* kDistillation = "KnowledgeDistillationRecipeForNextTokenPrediction";

void check_name(const Node& root) {
  if (recipe::name_of(root) != kDistillation) return;
  const Node* teacher = root.find("teacher_model");
  if (teacher == nullptr || teacher->is_null())
    throw Error(ErrorCode::config, root.find("recipe")->where(), "the section teacher_model is missing",
                "teacher_model: {pretrained_model_name_or_path: DIRECTORY}");
}

// Whether a validation set is packed like the training data: samples of unequal length, no row length of its
// own.
bool is_packed(const Node& section, const PackedSection& packed) {
  const auto given = [&](const char* key) {
    const Node* value = section.find(key);
    return value != nullptr && !value->is_null();
  };
  return packed.rules.size > 0 && given("lengths") && !given("seq_len");
}

// Reads the sections one by one. A section that fails is recorded and left at its defaults.
class RecipeReader {
 public:
  RecipeReader(const Node& root, Errors& errors) : root_(root), errors_(errors) {}

  Recipe read() {
    each("seed", [&] { read_seed(); });
    each("recipe", [&] { check_name(root_); });
    each_key("step_scheduler", [&](auto& found) {
      recipe_.steps = recipe::read_steps(of("step_scheduler"), not_built(), found);
    });
    each_key("model", [&](auto& found) { recipe_.model = recipe::read_model(of("model"), notes_, found); });
    read_data();
    each("optimizer", [&] { recipe::read_optimizer(of("optimizer"), recipe_.optimizer); });
    if (given("lr_scheduler"))
      each("lr_scheduler",
           [&] { recipe_.lr_schedule = recipe::read_lr_schedule(of("lr_scheduler"), not_built()); });
    each("loss_fn", [&] { recipe::read_loss(of("loss_fn"), notes_); });
    each("clip_grad_norm", [&] { read_clipping(); });
    each_key("checkpoint", [&](auto& found) { read_checkpoint(found); });
    each("validation_samples", [&] { recipe_.samples = recipe::read_samples(of("validation_samples")); });
    each("mfu", [&] { recipe_.mfu = recipe::read_mfu(of("mfu")); });
    each("plan", [&] { recipe::read_plan(root_); });
    each("benchmark", [&] { read_benchmark(); });
    each("plugins", [&] { recipe::read_plugins(of("plugins")); });
    recipe_.add(std::move(notes_));
    return std::move(recipe_);
  }

 private:
  recipe::NotBuilt& not_built() { return recipe_.not_built; }
  Node of(const std::string& section) const { return recipe::find_section(root_, section); }
  bool given(const std::string& section) const {
    const Node* node = root_.find(section);
    return node != nullptr && !node->is_null();
  }
  template <class Work>
  void each(const std::string& section, const Work& work) {
    if (!errors_.attempt(work)) recipe_.unread.push_back(section);
  }

  // Overload for a reader that records errors itself; the section counts as unread if one of its keys does.
  template <class Work>
  void each_key(const std::string& section, const Work& work) {
    SectionErrors found;
    each(section, [&] { work(found); });
    errors_.attempt([&] { found.errors.raise(); });
    if (found.unread.empty()) return;
    if (recipe_.is_read(section)) recipe_.unread.push_back(section);
    for (const std::string& key : found.unread) recipe_.unread.push_back(section + "." + key);
  }

  void read_seed() {
    const Node* seed = root_.find("seed");
    if (seed == nullptr || seed->is_null()) return;
    recipe_.seed = seed->as_integer();
    if (recipe_.seed < 0)
      throw Error(ErrorCode::config, seed->where(), "seed must be 0 or more, got " + seed->written());
  }

  // Reads the data sections; packed_sequence determines how token files are read.
  void read_data() {
    each_key("packed_sequence", [&](auto& found) {
      recipe_.packed = recipe::read_packed(of("packed_sequence"), not_built(), found);
      recipe_.packed_validation = recipe_.packed;
      recipe_.packed_validation.rules.max_packs.reset();
    });
    if (given("dataset"))
      each_key("dataset", [&](auto& found) {
        recipe_.dataset = recipe::read_dataset(of("dataset"), if_read(recipe_.packed), not_built(), found);
      });
    for (const auto& [key, section] : root_.entries())
      if (key.starts_with("validation_dataset") && !section.is_null())
        each_key(key, [&, &name = key, &set = section](auto& found) { read_validation(name, set, found); });
    each("dataloader", [&] {
      const std::optional<int64_t> rows = recipe_.is_read("step_scheduler", "local_batch_size")
                                              ? std::optional(recipe_.steps.local_batch_size)
                                              : std::nullopt;
      const recipe::Loader loader = recipe::read_dataloader(of("dataloader"), rows);
      check_type(of("dataloader"), loader);
      recipe_.shuffle = loader.shuffle;
      recipe_.pad_multiple = loader.pad_multiple;
      if (loader.drop_last) recipe_.whole_samples = recipe_.steps.local_batch_size;
    });
    if (given("validation_dataloader"))  // validation reads each set completely, in its own order
      each("validation_dataloader", [&] {
        const recipe::Loader loader = recipe::read_dataloader(of("validation_dataloader"), std::nullopt);
        check_type(of("validation_dataloader"), loader);
        if (loader.drop_last)
          recipe_.whole_validation_samples = loader.batch_size.value_or(recipe_.steps.local_batch_size);
      });
  }

  // Returns null if packed_sequence could not be read.
  const PackedSection* if_read(const PackedSection& packed) const {
    return recipe_.is_read("packed_sequence") ? &packed : nullptr;
  }

  void check_type(const Node& section, const recipe::Loader& loader) {
    if (!loader.type || !recipe_.dataset) return;
    if (recipe_.dataset->target != kMegatronBlend)
      throw Error(ErrorCode::config, recipe::key_location(section, "dataloader_type"),
                  "dataloader_type is only supported by Megatron dataset configs",
                  "remove it, and set dataloader.shuffle instead");
    if (*loader.type == "cyclic")
      recipe_.not_built.push_back(
          section.path() +
          ".dataloader_type: samples of a blend are always trained on in the order of its index");
  }

  // A benchmark runs max_steps equal steps and nothing else.
  void read_benchmark() {
    if (!recipe::is_benchmark(root_)) {
      if (given("benchmark")) notes_.skipped.push_back({"benchmark", "only the benchmark recipe reads it"});
      return;
    }
    recipe_.benchmark = recipe::read_benchmark(of("benchmark"), notes_);
    for (const auto& [key, section] : root_.entries())
      if (!section.is_null() && (key == "lr_scheduler" || key == "clip_grad_norm" || key == "checkpoint" ||
                                 key.starts_with("validation_")))
        notes_.skipped.push_back({key,
                                  "a benchmark only times steps: it has no schedule and no clipping, and "
                                  "neither validates nor saves"});
    recipe_.validation.clear();
    recipe_.samples = {};
    recipe_.lr_schedule.reset();
    recipe_.max_norm.reset();
    recipe_.checkpoint.enabled = false;
    recipe_.whole_samples = recipe_.steps.global_batch_size;
    recipe_.steps.num_epochs.reset();
    recipe_.steps.val_every_steps.reset();
    if (recipe_.is_read("step_scheduler", "max_steps") && !recipe_.steps.max_steps)
      throw Error(ErrorCode::config, of("step_scheduler").where(), "max_steps is missing",
                  "set step_scheduler.max_steps to the number of steps to time");
  }

  void read_validation(const std::string& key, const Node& section, SectionErrors& found) {
    if (key == "validation_dataset_default" && root_.find("validation_dataset") != nullptr)
      throw Error(ErrorCode::config, section.where(), "the name 'default' is that of validation_dataset",
                  "rename this section");
    const bool packed = is_packed(section, recipe_.packed);
    const PackedSection rules = packed ? recipe_.packed_validation : PackedSection{};
    DatasetSection set = recipe::read_dataset(section, if_read(rules), recipe_.not_built, found);
    if (key.size() > kNamedValidation.size()) set.name = key.substr(kNamedValidation.size());
    recipe_.validation.push_back(std::move(set));
  }

  void read_clipping() {
    const Node* clipping = root_.find("clip_grad_norm");
    if (clipping != nullptr && clipping->is_null())
      recipe_.max_norm = std::nullopt;
    else if (clipping != nullptr)
      std::tie(recipe_.max_norm, recipe_.norm_type) = recipe::read_clipping(*clipping);
  }

  // Reads `checkpoint:` after the data sets, because best_metric_key names a validation set.
  void read_checkpoint(SectionErrors& found) {
    recipe_.checkpoint = recipe::read_checkpoint(of("checkpoint"), notes_, found);
    const auto is_data = [](const std::string& section) {
      return section.starts_with("validation_dataset") || section == "packed_sequence";
    };
    if (std::any_of(recipe_.unread.begin(), recipe_.unread.end(), is_data)) return;
    found.check({"best_metric_key"}, [&] {
      recipe_.checkpoint.best_set =
          recipe::best_set(of("checkpoint"), recipe_.checkpoint.best_metric_key, recipe_.validation);
    });
  }

  const Node& root_;
  RecipeNotes notes_;
  Errors& errors_;
  Recipe recipe_;
};

}  // namespace

std::string recipe::name_of(const Node& root) {
  static const std::vector<std::string> kNames = {"TrainFinetuneRecipeForNextTokenPrediction",
                                                  "BenchmarkingRecipeForNextTokenPrediction", kDistillation};
  const Node* name = root.find("recipe");
  if (name != nullptr && name->is_map())
    name = name->without("_target_").size() == 0 ? name->find("_target_") : name;
  return name == nullptr || name->is_null() ? "" : config::component_of(*name, kNames);
}

bool Recipe::is_read(const std::string& section, const std::string& key) const {
  const auto lists = [&](const std::string& word) {
    return std::find(unread.begin(), unread.end(), word) != unread.end();
  };
  if (!lists(section)) return true;
  const bool by_key = std::any_of(unread.begin(), unread.end(),
                                  [&](const std::string& one) { return one.starts_with(section + "."); });
  return !key.empty() && by_key && !lists(section + "." + key);
}

void Recipe::add(RecipeNotes notes) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(skipped, notes.skipped);
  append(not_built, notes.not_built);
  append(warnings, notes.warnings);
}

Recipe read_recipe(const Node& root, RecipeErrors handling) {
  if (!root.is_map() && !root.is_null())
    throw Error(ErrorCode::config, root.where(), "expected a map of sections, got " + root.written());
  Errors errors;
  std::vector<Node::Entry> others = other_sections(root);
  errors.attempt([&] {
    if (const std::optional<Node> section = recipe::te_fp8_section(root))
      others.emplace_back("te_fp8", *section);
  });
  Recipe recipe = RecipeReader(root, errors).read();
  recipe.other_sections = std::move(others);
  if (handling == RecipeErrors::thrown) errors.raise();
  recipe.configuration = root;
  recipe.errors = std::move(errors);
  return recipe;
}

Recipe with_datasets(Recipe recipe, PluginRegistry& plugins) {
  const auto is_resolved = [&](DatasetSection& section) {
    return recipe.errors.attempt(
        [&] { section = resolve_dataset(std::move(section), plugins, recipe.not_built); });
  };
  if (recipe.dataset && !is_resolved(*recipe.dataset)) recipe.dataset.reset();
  std::erase_if(recipe.validation, [&](DatasetSection& section) { return !is_resolved(section); });
  return recipe;
}

Recipe with_plugins(const Recipe& read, PluginRegistry& plugins) {
  Recipe recipe = with_plugin_sections(read, plugins);
  const bool is_made = recipe.errors.attempt([&] {
    recipe.optimizer = resolve_optimizer(recipe.optimizer, plugins, recipe.not_built);
    (void)recipe.optimizer.make();
  });
  if (!is_made) recipe.optimizer.make = {};
  return with_datasets(std::move(recipe), plugins);
}

StepConfig step_config(const Recipe& recipe) {
  StepConfig config;
  config.max_norm = recipe.max_norm;
  config.norm_type = recipe.norm_type;
  config.master_weights = recipe.optimizer.master_weights;
  config.groups = recipe.optimizer.groups;
  config.benchmark = recipe.benchmark.has_value();
  return config;
}

std::vector<SectionFields> section_fields() {
  return {{"step_scheduler", recipe::step_fields()},
          {"model", recipe::model_fields()},
          {"dataset", recipe::dataset_fields()},
          {"packed_sequence", recipe::packed_fields()},
          {"dataloader", recipe::dataloader_fields()},
          {"loss_fn", recipe::loss_fields()},
          {"optimizer", recipe::optimizer_fields()},
          {"optimizer.param_group_overrides", recipe::group_fields()},
          {"lr_scheduler", recipe::lr_fields()},
          {"clip_grad_norm", recipe::clipping_fields()},
          {"checkpoint", recipe::checkpoint_fields()},
          {"validation_samples", recipe::samples_fields()},
          {"benchmark", recipe::benchmark_fields()},
          {"mfu", recipe::mfu_fields()},
          {"plan", recipe::plan_fields()}};
}

}  // namespace heddle
