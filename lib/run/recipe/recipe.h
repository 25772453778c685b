// A run's configuration except for `distributed:` and `dist_env:`, read and checked.
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
  Node configuration;  // the whole file with overrides
  int64_t seed = 42;
  StepSection steps;
  ModelSection model;
  std::optional<DatasetSection> dataset;
  PackedSection packed, packed_validation;  // packed_validation has no max_packs
  std::vector<DatasetSection> validation;
  Shuffle shuffle = Shuffle::on;
  // The last samples of an epoch, and of a validation set, are discarded if they do not fill this many.
  int64_t whole_samples = 1, whole_validation_samples = 1;
  // of dataloader.collate_fn: rows of unequal length are padded to a multiple of it
  int64_t pad_multiple = 1;
  OptimizerSection optimizer;
  std::optional<LrSection> lr_schedule;
  std::optional<double> max_norm = 1.0;  // empty: no clipping
  double norm_type = 2.0;
  CheckpointSection checkpoint;
  SamplesSection samples;
  std::optional<BenchmarkSection> benchmark;  // empty: the recipe trains
  MfuSection mfu;
  std::vector<Node::Entry> other_sections;  // sections that heddle does not read itself, unchanged
  std::vector<PluginSection> sections;  // of `other_sections`, set by with_plugin_sections(), in file order
  std::vector<std::string> idle = {};   // names of transforms that are turned off
  std::vector<std::string> unread;      // sections with an error, and invalid keys such as "model.config"
  std::vector<std::string> not_built;   // settings that are valid but not built: "checkpoint.is_async: why"
  std::vector<SkippedKey> skipped;      // sections and keys without effect
  std::vector<std::string> warnings;
  Errors errors;  // errors of unread sections and of unknown keys
  void add(RecipeNotes notes);
  // Whether a section, or one of its keys, was read without an error.
  bool is_read(const std::string& section, const std::string& key = "") const;
};

// Whether errors of sections are thrown together, or kept in Recipe::errors and thrown with those of the
// model and the data.
enum class RecipeErrors { thrown, kept };

// Reads every section but `distributed:` and `dist_env:`, which the engine reads, and those of plugins, which
// with_plugins() adds later. Opens no file. Throws the errors of all sections together as Error{config} with
// file, line, key and the nearest key.
Recipe read_recipe(const Node& configuration, RecipeErrors errors = RecipeErrors::thrown);

// Returns the recipe with the values that plugins read: their sections, and the keys of the optimizer and of
// the data sets. Errors are added to Recipe::errors; an optimizer that fails has no `make`, and a data set
// that fails is dropped.
Recipe with_plugins(const Recipe& recipe, PluginRegistry& plugins);
Recipe with_plugin_sections(Recipe recipe, PluginRegistry& plugins);
Recipe with_datasets(Recipe recipe, PluginRegistry& plugins);

// Returns the section with the keys that the optimizer's plugin reads. `not_built` grows as in a Recipe.
// Throws Error{plugin_missing} at _target_, and Error{config} at a key.
OptimizerSection resolve_optimizer(OptimizerSection section, PluginRegistry& plugins,
                                   std::vector<std::string>& not_built);

// Returns gradient clipping, master copies and parameter groups of a recipe.
StepConfig step_config(const Recipe& recipe);

// Opens the plugins of a run: sets the search path with the directories of `plugins:` (relative to the YAML
// file) and loads the files and names in it.
PluginRegistry open_plugins(const Node& configuration, const Log& log);
// Overload for a recipe; throws errors of the plugins together with those of the recipe.
PluginRegistry open_plugins(const Recipe& recipe, const Log& log);
// Warns of each directory of HEDDLE_PLUGIN_PATH that does not exist.
void warn_of_plugin_path(const Log& log);

}  // namespace heddle
