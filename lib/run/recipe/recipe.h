// A whole recipe beside `distributed:` and `dist_env:`, read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"
#include "lib/run/recipe/benchmark.h"
#include "lib/run/recipe/plugin_sections.h"
#include "lib/run/recipe/sections.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle {

struct Recipe {
  Node configuration;  // the whole file, with the overrides
  int64_t seed = 42;
  StepSection steps;
  ModelSection model;
  std::optional<DatasetSection> dataset;
  PackedSection packed, packed_validation;  // the second without max_packs
  std::vector<DatasetSection> validation;
  Shuffle shuffle = Shuffle::on;
  // The last samples of an epoch, and of a validation set, are left out where they do not fill so many.
  int64_t whole_samples = 1, whole_validation_samples = 1;
  int64_t pad_multiple = 1;  // of dataloader.collate_fn: ragged rows are rounded up to it
  OptimizerSection optimizer;
  std::optional<LrSection> lr_schedule;
  std::optional<double> max_norm = 1.0;  // empty: no clipping
  double norm_type = 2.0;
  CheckpointSection checkpoint;
  SamplesSection samples;
  std::optional<BenchmarkSection> benchmark;  // empty: the recipe trains
  MfuSection mfu;
  std::vector<Node::Entry> others;      // sections that are not heddle's own, as they stand
  std::vector<PluginSection> sections;  // of these by with_plugin_sections(), in the order of the file
  std::vector<std::string> idle = {};   // names of transforms that are not turned on
  std::vector<std::string> unread;      // sections with an error, and their keys "model.config"
  std::vector<std::string> not_built;   // "checkpoint.is_async: why": set, valid, and not built yet
  std::vector<SkippedKey> skipped;      // what changes nothing
  std::vector<std::string> warnings;
  Errors errors;  // of the unread sections and of unknown keys
  void add(RecipeNotes notes);
  // Whether a section, or one key of it, has no error.
  bool is_read(const std::string& section, const std::string& key = "") const;
};

// What becomes of the errors of sections: they are thrown together, or kept in Recipe::errors, to be thrown
// with those of the model and the data.
enum class RecipeErrors { thrown, kept };

// Reads every section but `distributed:` and `dist_env:`, which belong to the engine, and what plugins read,
// which with_plugins() adds once plugins are known. Opens no file.
// Throws Error{config} with file, line, key and the nearest key; of several sections together.
Recipe read_recipe(const Node& configuration, RecipeErrors errors = RecipeErrors::thrown);

// The recipe with what plugins read of it: their sections, the keys of the optimizer and of the data sets.
// What fails is in Recipe::errors; an optimizer that fails has no `make`, and a data set is left out.
Recipe with_plugins(const Recipe& recipe, PluginRegistry& plugins);
Recipe with_plugin_sections(Recipe recipe, PluginRegistry& plugins);
Recipe with_datasets(Recipe recipe, PluginRegistry& plugins);

// The section with its optimizer's plugin, which reads the other keys. `not_built` grows as in a Recipe.
// Throws Error{plugin_missing} at _target_, and Error{config} at a key.
OptimizerSection resolve_optimizer(OptimizerSection section, PluginRegistry& plugins,
                                   std::vector<std::string>& not_built);

// Clipping, master copies and groups of parameters.
StepConfig step_config(const Recipe& recipe);

// The plugins of a run: the search path with the directories of `plugins:` (relative to the YAML file), and
// the files and names in it loaded.
PluginRegistry open_plugins(const Node& configuration, const Log& log);
// The same for a whole recipe; an error of the plugins is thrown together with those of the recipe.
PluginRegistry open_plugins(const Recipe& recipe, const Log& log);
// Warns of each directory of HEDDLE_PLUGIN_PATH that is not there.
void warn_of_plugin_path(const Log& log);

}  // namespace heddle
