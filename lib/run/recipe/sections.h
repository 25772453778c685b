// Sections of a recipe except for `distributed:`. Initializers are the defaults.
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

// AutoModel's StepSchedulerConfig with its defaults, and local_batch_size.
struct StepSection {
  int64_t global_batch_size = 32;          // samples of one optimizer step, over all ranks
  int64_t local_batch_size = 1;            // samples of one microbatch
  std::optional<int64_t> num_epochs = 10;  // null: as many as max_steps needs
  std::optional<int64_t> max_steps;
  std::optional<int64_t> ckpt_every_steps = 100;  // null: once per epoch
  bool save_checkpoint_every_epoch = true;
  bool validate_on_checkpoint = true;
  std::optional<int64_t> val_every_steps;
  int64_t log_remote_every_steps = 1;
  int64_t loss_average_window_steps = 50;
  std::optional<int64_t> gc_every_steps;
  int64_t start_step = 0, start_epoch = 0;
  std::optional<int64_t> max_skipped_updates = 10;  // consecutive; null: no limit
  StopSignals stop_signals = {{SIGTERM}};           // preemption_signal
  std::optional<std::string> preemption_sender;     // scheduler or person; null: see preemptions()
  std::string where = "step_scheduler";             // place of global_batch_size, for messages
  std::string val_where = "step_scheduler.val_every_steps";
};

// Overrides of a pretrained model's config.json.
struct ConfigOverrides {
  Node keys;              // a map of Hugging Face keys; null: none
  bool exported = false;  // exports contain the overrides too
  bool empty() const { return keys.is_null(); }
};

struct ModelSection {
  enum class Source { pretrained, config } source = Source::config;
  std::string directory;  // from_pretrained: a Hugging Face directory
  Node config;            // from_config: a map of Hugging Face keys, or the path of a config.json or a model
  Node backend;           // router keys of model.backend, besides a map of Hugging Face keys
  ConfigOverrides overrides;  // overrides of the config.json
  std::string dtype;          // storage dtype; empty: that of config.json, else dtype_without_word
  std::string dtype_without_word = "float32";
  // Keys of multi-token prediction heads, which act as if config.json had them if the model's family has such
  // heads; null: none.
  Node mtp_keys;
  std::string mtp_heads;     // place that asks for such heads; empty: none
  Node automodel;            // the _target_ if it names a class of AutoModel's own modules; null: none
  std::string routing;       // router keys that with_recipe_keys() added for `automodel`, for messages
  bool check_memory = true;  // refuse a run that does not fit into this machine's memory
  std::string where;         // place of the section, for messages
};

// The section packed_sequence.
struct PackedSection {
  PackRules rules;        // size 0: samples are not packed
  bool drop_long = true;  // discard samples longer than a pack
  std::string where = "packed_sequence";
};

// Keys that every set of texts has in addition to its plugin's fields.
struct TextKeys {
  Node tokenizer;                   // tokenizer of the training set; null: the model's
  std::optional<std::string> date;  // result of a template's strftime_now; empty: today
  bool apply_split = false;         // apply the split to local JSON files too
};

struct DatasetSection {
  std::string name;    // "" or the NAME of validation_dataset_NAME
  std::string target;  // name of the data set: the last component of _target_; token files if it is absent
  Node section;        // as written, without invalid keys
  bool whole = true;   // false: keys are invalid, so the set cannot be opened
  int64_t sequence_length = 0;                   // tokens per row if the section gives them; else 0
  bool packed = false;                           // packed as packed_sequence says
  std::optional<TextKeys> texts = std::nullopt;  // set by resolve_dataset() for a set of texts
  std::optional<int64_t> most_samples;  // maximum number of samples, for a set without such a key of its own
  std::string where, length_where;      // places of the set and of its row length, for messages
  std::string length_key = "seq_len";   // key of the row length
};

// Keys that all optimizers share, and the section of the plugin.
struct OptimizerSection {
  std::string name = "AdamW";                         // last component of _target_
  std::optional<double> lr, weight_decay;             // resolve_optimizer() sets missing values
  Node own = Node::map({});                           // keys of the plugin, as given
  Node fields = Node::map({});                        // keys of the plugin with defaults
  std::vector<std::string> no_effect;                 // keys of `fields` that do not affect results
  std::function<std::unique_ptr<IOptimizer>()> make;  // set by resolve_optimizer()
  bool master_weights = false;
  std::vector<ParameterGroup> groups;
  std::vector<std::string> groups_where;  // places of the groups' patterns, for messages
  std::string where = "optimizer";        // place of _target_, for messages
};

// Keys of AutoModel's OptimizerParamScheduler. Empty values are filled in by LrSchedule.
struct LrSection {
  std::string lr_decay_style = "cosine";
  std::optional<int64_t> lr_warmup_steps, lr_decay_steps;
  std::optional<double> init_lr, max_lr, min_lr;
  std::optional<double> start_wd, end_wd;
  std::optional<int64_t> wd_incr_steps;
  std::string wd_incr_style = "constant";
  std::optional<int64_t> wsd_decay_steps;
  std::optional<std::string> lr_wsd_decay_style;
  std::string where;  // place of the section, for messages
};

struct CheckpointSection {
  enum class Export { never, final, every };
  bool enabled = true;
  std::string directory = "checkpoints/";
  Export save_consolidated = Export::final;
  std::optional<std::string> restore_from;  // empty: the latest checkpoint, if any
  bool accept_other_data = false;           // resume with another data set or tokenizer
  bool accept_other_base = false;           // resume with other weights of the base model or of a teacher
  double consolidation_timeout_minutes = 30;
  bool single_rank_consolidation = false, v4_compatible = false;
  std::optional<int64_t> max_recent;  // checkpoints to keep besides those with a pointer; empty: all
  std::string best_metric_key = "default";
  std::optional<std::string> best_set;  // validation set of LOWEST_VAL ("": the unnamed set); empty: none
  bool is_async = false;
  std::optional<std::string> staging_dir;  // empty: next to the checkpoint
  std::string staging_where;               // place of staging_dir, for messages
};

// Prompts that the running model answers at each validation.
struct SamplesSection {
  std::vector<std::string> prompts;  // empty: none
  bool chat = false;                 // render a prompt as a user message with the chat template
  int64_t max_new_tokens = 32;       // per answer
  double temperature = 0;            // 0: the most likely token
  int64_t top_k = 0;                 // 0: all tokens
  double top_p = 1;
  int64_t seed = 0;   // seed of sampling, equal at each validation
  std::string where;  // place of the section, for messages
};

struct PluginsSection {
  std::vector<std::string> places;  // directories to search
  std::vector<std::string> load;    // files and names to load
};

}  // namespace heddle
