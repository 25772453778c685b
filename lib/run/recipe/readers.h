// Readers of the sections. Each throws the errors of all its keys together as Error{config}. A reader with
// `found` records them there and returns the section without the invalid keys. Settings that are valid but
// not built are added to `not_built`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/sections.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle::recipe {

using NotBuilt = std::vector<std::string>;

// Returns the last component of the section `recipe`, which may be a map with _target_; empty: not given.
std::string name_of(const Node& root);
StepSection read_steps(const Node& section, NotBuilt& not_built, SectionErrors& found);
// Unknown keys and the dtype do not make the model unreadable, so they are not among the unread keys.
ModelSection read_model(const Node& section, RecipeNotes& notes, SectionErrors& found);
// Throws Error{config} at the invalid keys.
ModelSection read_model(const Node& section, RecipeNotes& notes);
PackedSection read_packed(const Node& section, NotBuilt& not_built, SectionErrors& found);
// packed: how samples are packed; null: unknown.
DatasetSection read_dataset(const Node& section, const PackedSection* packed, NotBuilt& not_built,
                            SectionErrors& found);
struct Loader {
  Shuffle shuffle = Shuffle::on;
  int64_t pad_multiple = 1;  // rows of unequal length are padded to a multiple of it
  bool drop_last = false;    // discard the last samples of an epoch that do not fill a microbatch
  std::optional<int64_t> batch_size;
  std::optional<std::string> type;  // dataloader_type
};
// local_batch_size: of step_scheduler; empty: unknown.
Loader read_dataloader(const Node& section, std::optional<int64_t> local_batch_size);
// Reads the keys that all optimizers share; resolve_optimizer() reads the others. If it throws, `out` still
// has the optimizer's name and its own keys.
void read_optimizer(const Node& section, OptimizerSection& out);
LrSection read_lr_schedule(const Node& section, NotBuilt& not_built);
CheckpointSection read_checkpoint(const Node& section, RecipeNotes& notes, SectionErrors& found);
// Returns the set that best_metric_key names. A single set is the default; of several named sets, none is.
// Throws Error{config} with the available names.
std::optional<std::string> best_set(const Node& section, const std::string& key,
                                    const std::vector<DatasetSection>& sets);
SamplesSection read_samples(const Node& section);
void read_loss(const Node& section, RecipeNotes& notes);
// Returns max_norm and the order p of the norm. A single number is max_norm.
std::pair<std::optional<double>, double> read_clipping(const Node& section);
PluginsSection read_plugins(const Node& section);

// Returns model.backend.te_fp8 of a recipe as a section of its own; empty: not given. The fields linear and
// experts tell what backend assigns to Transformer Engine. Throws Error{config} if neither is set to it, and
// for an object instead of a recipe's name.
std::optional<Node> te_fp8_section(const Node& root);

// Whether the section names AutoModel's function build_gpt2_model.
bool builds_gpt2(const Node& section);
// Returns a GPT-2 with random weights, exact GELU, and dropout 0.1 of embeddings and attention weights.
// Throws Error{config}.
ModelSection read_built_gpt2(const Node& section);

// Adds the fields of a schema that are set but not built, prefixed with the section's name.
template <class Schema, class Struct>
void add_not_built(NotBuilt& out, const std::string& section, const Schema& schema, const Struct& value) {
  for (const std::string& field : schema.not_built(value)) out.push_back(section + "." + field);
}

}  // namespace heddle::recipe
