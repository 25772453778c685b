// The sections of a recipe beside `distributed:`, as structs whose initialisers are the defaults.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/train/step.h"
#include "lib/data/packing.h"
#include "lib/data/sample_order.h"
#include "lib/run/recipe/signals.h"

namespace heddle {

// Keys and defaults are those of AutoModel's StepSchedulerConfig, and local_batch_size, which stands beside
// them.
struct StepSection {
  int64_t global_batch_size = 32;          // samples of one optimizer step, over all ranks
  int64_t local_batch_size = 1;            // samples of one microbatch
  std::optional<int64_t> num_epochs = 10;  // null: as many as max_steps takes
  std::optional<int64_t> max_steps;
  std::optional<int64_t> ckpt_every_steps = 100;  // null: once an epoch
  bool save_checkpoint_every_epoch = true;
  bool validate_on_checkpoint = true;
  std::optional<int64_t> val_every_steps;
  int64_t log_remote_every_steps = 1;
  int64_t loss_average_window_steps = 50;
  std::optional<int64_t> gc_every_steps;
  int64_t start_step = 0, start_epoch = 0;
  std::optional<int64_t> max_skipped_updates = 10;  // in a row; null: no limit
  StopSignals stop_signals = {{SIGTERM}};           // preemption_signal
  std::optional<std::string> preemption_sender;     // scheduler or person; null: see preemptions()
  std::string where = "step_scheduler";             // of global_batch_size, for messages
  std::string val_where = "step_scheduler.val_every_steps";
};

// Keys of a pretrained model's config.json that a run sets otherwise.
struct ConfigOverrides {
  Node keys;              // a map of HF's keys; null: none
  bool exported = false;  // the model that the run exports has them too
  bool empty() const { return keys.is_null(); }
};

struct ModelSection {
  enum class Source { pretrained, config } source = Source::config;
  std::string directory;      // from_pretrained: an HF directory
  Node config;                // from_config: a map of HF's keys, or the path of a config.json or a model
  Node backend;               // keys of routers that model.backend sets, beside a map of HF's keys
  ConfigOverrides overrides;  // keys in place of those of the config.json
  std::string dtype;          // storage; empty: what config.json says, else dtype_without_word
  std::string dtype_without_word = "float32";
  // Keys of multi-token prediction heads, which act as if config.json had them where the model's family
  // has such heads; null: none.
  Node mtp_keys;
  std::string mtp_heads;     // where such heads are asked for; empty: nowhere
  Node automodel;            // the _target_ that names a class of AutoModel's own modules; null: none
  std::string routing;       // what with_recipe_keys() gave it for that reason, for messages
  bool check_memory = true;  // refuse what this machine's memory cannot hold
  std::string where;         // of the section, for messages
};

// The section packed_sequence.
struct PackedSection {
  PackRules rules;        // size 0: samples are not packed
  bool drop_long = true;  // samples longer than a pack
  std::string where = "packed_sequence";
};

// What every set of texts has beside its plugin's fields.
struct TextKeys {
  Node tokenizer;                   // of the training set; null: the model's
  std::optional<std::string> date;  // what a template's strftime_now sees; empty: today
  bool apply_split = false;         // of local JSON files too
};

struct DatasetSection {
  std::string name;             // "" or the NAME of validation_dataset_NAME
  std::string target;           // the last word of _target_: which data set; token files where it is absent
  Node section;                 // as it is written, without keys that are wrong
  bool whole = true;            // false: keys are wrong, and the set cannot be opened
  int64_t sequence_length = 0;  // of a row, where the section says it; else 0
  bool packed = false;          // by packed_sequence
  std::optional<TextKeys> texts = std::nullopt;  // set by resolve_dataset() for a set of texts
  std::optional<int64_t> most_samples;           // the first so many, of a set that has no such key itself
  std::string where, length_where;               // of the set, and of its rows' length, for messages
};

// What every optimizer has, and the section of its plugin.
struct OptimizerSection {
  std::string name = "AdamW";              // the last word of _target_
  std::optional<double> lr, weight_decay;  // resolve_optimizer() sets what is not given
  Node own = Node::map({});                // the keys that its plugin reads, as they are given
  Node fields = Node::map({});             // these keys as the plugin reads them, with their defaults
  std::vector<std::string> no_effect;      // keys of `fields` that change no number
  std::function<std::unique_ptr<IOptimizer>()> make;  // empty before resolve_optimizer()
  bool master_weights = false;
  std::vector<ParameterGroup> groups;
  std::vector<std::string> groups_where;  // of each group's pattern, for messages
  std::string where = "optimizer";        // of _target_, for messages
};

// Keys are those of AutoModel's OptimizerParamScheduler; what is empty is filled from the run (see
// LrSchedule).
struct LrSection {
  std::string lr_decay_style = "cosine";
  std::optional<int64_t> lr_warmup_steps, lr_decay_steps;
  std::optional<double> init_lr, max_lr, min_lr;
  std::optional<double> start_wd, end_wd;
  std::optional<int64_t> wd_incr_steps;
  std::string wd_incr_style = "constant";
  std::optional<int64_t> wsd_decay_steps;
  std::optional<std::string> lr_wsd_decay_style;
  std::string where;  // of the section, for messages
};

struct CheckpointSection {
  enum class Export { never, final, every };
  bool enabled = true;
  std::string directory = "checkpoints/";
  Export save_consolidated = Export::final;
  std::optional<std::string> restore_from;  // empty: the latest checkpoint, where there is one
  bool accept_other_data = false;           // go on with another data set or tokenizer
  bool accept_other_base = false;           // resume with other weights of the base model or of a teacher
  double consolidation_timeout_minutes = 30;
  bool single_rank_consolidation = false, v4_compatible = false;
  std::optional<int64_t> max_recent;  // checkpoints that stay, beside those with a pointer; empty: all
  std::string best_metric_key = "default";
  std::optional<std::string> best_set;  // the validation set of LOWEST_VAL ("": the unnamed); empty: none
  bool is_async = false;
  std::optional<std::string> staging_dir;  // empty: beside the checkpoint
  std::string staging_where;               // of staging_dir, for messages
};

// Prompts that the running model answers at each validation.
struct SamplesSection {
  std::vector<std::string> prompts;  // empty: none
  bool chat = false;                 // a prompt is a user's message, rendered by the chat template
  int64_t max_new_tokens = 32;       // of each answer
  double temperature = 0;            // 0: the likeliest token
  int64_t top_k = 0;                 // 0: all tokens
  double top_p = 1;
  int64_t seed = 0;   // of the draws, the same at each validation
  std::string where;  // of the section, for messages
};

struct PluginsSection {
  std::vector<std::string> places;  // directories to look in
  std::vector<std::string> load;    // files and names
};

}  // namespace heddle
