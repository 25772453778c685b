// One reader a section. What is wrong is thrown as Error{config}, for all keys together; readers with
// `found` note it there, and return the section without it. `not_built` grows by what is set, valid, and
// comes later.
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

// The last word of the section `recipe`, which may be a map of its _target_; empty: it is not given.
std::string name_of(const Node& root);
StepSection read_steps(const Node& section, NotBuilt& not_built, SectionErrors& found);
// A key that is not known and the dtype leave the model as it is: they are not among the unread.
ModelSection read_model(const Node& section, RecipeNotes& notes, SectionErrors& found);
// Throws Error{config} at the keys that are wrong.
ModelSection read_model(const Node& section, RecipeNotes& notes);
PackedSection read_packed(const Node& section, NotBuilt& not_built, SectionErrors& found);
// packed: what packs the set's samples; null: not known.
DatasetSection read_dataset(const Node& section, const PackedSection* packed, NotBuilt& not_built,
                            SectionErrors& found);
struct Loader {
  Shuffle shuffle = Shuffle::on;
  int64_t pad_multiple = 1;  // rows of unequal length are rounded up to it
  bool drop_last = false;    // the last samples of an epoch that do not fill a microbatch
  std::optional<int64_t> batch_size;
  std::optional<std::string> type;  // dataloader_type
};
// local_batch_size: of step_scheduler; empty: not known.
Loader read_dataloader(const Node& section, std::optional<int64_t> local_batch_size);
// The keys of every optimizer; resolve_optimizer() reads the others.
// Where it throws, `out` has its name and its own keys all the same.
void read_optimizer(const Node& section, OptimizerSection& out);
LrSection read_lr_schedule(const Node& section, NotBuilt& not_built);
CheckpointSection read_checkpoint(const Node& section, RecipeNotes& notes, SectionErrors& found);
// The set that best_metric_key names; a single set is the default, and of several named ones none is. Throws
// Error{config} with the names there are.
std::optional<std::string> best_set(const Node& section, const std::string& key,
                                    const std::vector<DatasetSection>& sets);
SamplesSection read_samples(const Node& section);
void read_loss(const Node& section, RecipeNotes& notes);
// max_norm, and the norm's p. A number alone is max_norm.
std::pair<std::optional<double>, double> read_clipping(const Node& section);
PluginsSection read_plugins(const Node& section);

// model.backend.te_fp8 of a recipe as a section of its own; empty: it is not given. With the fields linear
// and experts: what backend has computed by Transformer Engine. Throws Error{config} where that is neither,
// and for an object in place of a recipe's name.
std::optional<Node> te_fp8_section(const Node& root);

// Whether the section names AutoModel's function build_gpt2_model.
bool builds_gpt2(const Node& section);
// Random weights of a GPT-2 with the exact gelu, and a dropout of 0.1 of embeddings and attention's weights.
// Throws Error{config}.
ModelSection read_built_gpt2(const Node& section);

// Adds a schema's later fields with the section's name in front.
template <class Schema, class Struct>
void add_not_built(NotBuilt& all, const std::string& section, const Schema& schema, const Struct& value) {
  for (const std::string& one : schema.not_built(value)) all.push_back(section + "." + one);
}

}  // namespace heddle::recipe
