// Reads the configuration, opens the model and the data, and asks the plan about them.
#include "trainer/metrics/look.h"

#include <algorithm>
#include <system_error>

#include "core/base/error_list.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/attention_layout.h"
#include "trainer/loop/open_data.h"
#include "trainer/loop/open_model.h"
#include "trainer/metrics/model_size.h"
#include "trainer/models/find_model.h"
#include "trainer/models/freeze.h"
#include "trainer/models/same_tokenizer.h"
#include "trainer/models/without_effect.h"

namespace heddle {
namespace {

void check_length(const DatasetSection& section, const ModelFacts& model) {
  if (section.sequence_length <= model.max_positions) return;
  throw Error(ErrorCode::config, section.length_where,
              "seq_len " + std::to_string(section.sequence_length) + " is longer than the model's " +
                  positions_text(model),
              "make dataset.seq_len smaller" + or_more_positions(model));
}

// What of the model's attention over documents a GPU does not compute; empty: nothing.
std::string not_on_gpus(const Units& units) {
  std::string out;
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string&, Module& module) {
      const auto* core = dynamic_cast<const AttentionCore*>(&module);
      if (core != nullptr && out.empty()) out = model::gpu_refusal(core->head_dim(), core->options());
    });
  }
  return out;
}

bool overlaps(const ScheduleTable& table) {
  for (const auto& row : table)
    for (const Action& action : row)
      if (action.overlaps_next) return true;
  return false;
}

// Mixed precision's dtype where the strategy has one, else the storage's.
bool computes_in_float32(const Node& strategy, at::ScalarType storage) {
  const auto given = [&](const Node* within, const char* key) {
    const Node* value = within == nullptr || !within->is_map() ? nullptr : within->find(key);
    return value == nullptr || value->is_null() ? std::string() : value->as_text();
  };
  const std::string autocast = given(&strategy, "autocast_dtype"),
                    policy = given(strategy.find("mp_policy"), "param_dtype");
  const std::string word = autocast.empty() ? policy : autocast;
  return word.empty() ? storage == at::kFloat : word == "float32";
}

// attend() would refuse them at the first step. A window as wide as the longest row has no effect.
void refuse_windows(const Units& units, const Recipe& recipe) {
  if (!recipe.dataset) return;
  int64_t longest = recipe.dataset->sequence_length;
  for (const DatasetSection& section : recipe.validation)
    longest = std::max(longest, section.sequence_length);
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string&, Module& module) {
      const auto* core = dynamic_cast<const AttentionCore*>(&module);
      if (core == nullptr || core->options().window == 0 || core->options().window >= longest) return;
      const std::string window = std::to_string(core->options().window);
      throw Error(ErrorCode::not_built, "model",
                  "attention with a sliding window (" + window + " tokens, in rows of " +
                      std::to_string(longest) + ") is built for the CPU only",
                  "set dist_env.backend: gloo, or a seq_len of at most " + window +
                      ", or use a model without windows");
    });
  }
}

// A checkpoint is published by renaming it, which a file system does only within itself.
void check_staging(const CheckpointSection& section) {
  if (!section.enabled || !section.staging_dir) return;
  if (checkpoint::on_one_file_system(*section.staging_dir, section.directory)) return;
  throw Error(ErrorCode::config, section.staging_where,
              "staging_dir " + *section.staging_dir + " is on another file system than checkpoint_dir " +
                  section.directory + ", so a checkpoint cannot be renamed from the one to the other",
              "name a directory beside checkpoint_dir, or leave checkpoint.staging_dir out");
}

class Walk {
 public:
  Walk(PluginRegistry& plugins, Machine machine) : plugins_(plugins), another_(machine == Machine::another) {}

  // Each line is attempted where what it needs is known.
  Look go(const Node& configuration, int world_size) {
    look_.recipe = read_recipe(configuration, errors_);
    const bool is_valid =
        errors_.attempt([&] { look_.setup = engine::validate(configuration, plugins_, world_size); });
    errors_.attempt([&] { engine::refuse_not_built(configuration, look_.recipe.not_built); });
    const bool is_planned = is_valid && errors_.attempt([&] { choose(); });
    errors_.attempt([&] { require_data(configuration); });
    if (!another_) errors_.attempt([&] { check_staging(look_.recipe.checkpoint); });
    if (is_read("model")) errors_.attempt([&] { see_model(); });
    if (look_.model && is_planned && is_read("step_scheduler") && is_read("freeze_config"))
      errors_.attempt([&] { see_units(); });
    see_data();
    if (is_valid && is_read("step_scheduler"))
      errors_.attempt([&] { check_split(look_.recipe.steps, look_.setup.sizes.dp); });
    errors_.raise();
    count_steps();
    return std::move(look_);
  }

 private:
  bool is_read(const std::string& section) const {
    const auto& unread = look_.recipe.unread;
    return std::find(unread.begin(), unread.end(), section) == unread.end();
  }

  void require_data(const Node& configuration) const {
    const Node* section = configuration.find("dataset");
    if (section != nullptr && !section->is_null()) return;
    throw Error(
        ErrorCode::config, configuration.where(), "the section dataset is missing",
        "dataset: {file_pattern: train.bin, seq_len: 256}; heddle data makes a token file from a text");
  }

  void lacks(const std::string& what) { look_.setup.warnings.push_back("on this machine " + what); }

  // A look for another machine has no device; then the name of the backend tells.
  bool on_cpu() const {
    const std::string& backend = look_.setup.backend;
    return look_.plan.device == nullptr && (backend.empty() || backend == "gloo");
  }

  // Refuses what is not built; each rank makes a plan of its own.
  void choose() {
    Setup asked = look_.setup;
    if (another_) {
      try {
        engine::choose_device(asked, plugins_);
      } catch (const Error& error) {
        lacks(error.message());
      }
      asked.backend = "gloo";
    }
    look_.plan = engine::choose(asked, plugins_);
  }

  void see_model() {
    const std::filesystem::path place = place_of(look_.recipe.model);
    std::error_code ignored;
    if (another_ && !place.empty() && !std::filesystem::exists(place, ignored))
      return lacks(place.string() + " is not there: the model is not checked");
    look_.model = open_model(look_.recipe.model, plugins_, look_.setup.warnings);
  }

  // What the model and the batch have to say to the plan, on meta: each rank makes its own units later.
  void see_units() {
    const JobModel& model = *look_.model;
    Units units = model.spec->make_units(at::TensorOptions(at::kMeta).dtype(model.dtype));
    warn_of_unused(model, units, look_.setup.warnings);
    check_weights(model, units);
    if (look_.recipe.freeze) freeze(units, *look_.recipe.freeze);
    check_groups(units, look_.recipe.optimizer);
    const SavedBytes saved = saved_bytes(units, look_.recipe.optimizer.master_weights);
    look_.model->checkpoint_bytes = saved.checkpoint;
    look_.model->export_bytes = saved.model;
    const int64_t rows = look_.recipe.steps.local_batch_size;
    engine::check_model(look_.plan, look_.setup, units, rows);
    if (!on_cpu()) {
      refuse_windows(units, look_.recipe);
      not_on_device_ = not_on_gpus(units);
      if (not_on_device_.empty() && computes_in_float32(look_.setup.strategy_config, model.dtype))
        not_on_device_ = "float32 (bfloat16 and float16 are allowed)";
    }
    if (look_.plan.schedule == nullptr) return;
    const PipelineConfig& words = look_.plan.pipeline;
    JobPipeline& pipeline = look_.pipeline.emplace();
    pipeline.schedule = words.table.empty() ? text::lower(words.schedule) : words.table;
    pipeline.stages =
        static_cast<int>(parallel::map_stages(units, look_.plan, look_.setup.sizes.pp).rank_of_stage.size());
    pipeline.microbatch_size = words.microbatch_size;
    pipeline.microbatches = static_cast<int>(rows / words.microbatch_size);
    if (words.overlap &&
        !overlaps(look_.plan.schedule->plan(look_.setup.sizes.pp, pipeline.stages, pipeline.microbatches)))
      look_.setup.warnings.push_back(words.where + ".pp_overlap has no effect: the schedule '" +
                                     pipeline.schedule + "' overlaps no actions");
    if (words.post_validation && look_.recipe.norm_type != 2)
      throw Error(
          ErrorCode::config, words.where + ".pp_post_validation",
          "post-validation passes a sum of squares along the pipeline, and clip_grad_norm.norm_type is "
          "not 2",
          "set norm_type: 2, or pp_post_validation: false");
  }

  // Empty on another machine where files are missing.
  std::optional<TokenDataset> open(const DatasetSection& section, const PackedSection& packed) {
    std::vector<LackingFiles> lacking;
    auto dataset = open_dataset(section, packed, look_.recipe.seed, lacking, look_.setup.warnings);
    for (const LackingFiles& none : lacking) {
      if (!another_)
        throw Error(ErrorCode::input, none.where, none.what,
                    "paths are relative to " + std::filesystem::current_path().string());
      lacks(none.what + ": the data is not checked");
    }
    if (!dataset) return std::nullopt;
    const auto vocabulary = look_.model ? std::optional(look_.model->spec->facts().vocabulary) : std::nullopt;
    check_dataset(*dataset, section, packed, not_on_device_, vocabulary);
    if (look_.model) check_tokenizer(*dataset, look_.model->origin, section.where);
    if (look_.model) check_longest(*dataset, section, look_.model->spec->facts());
    if (const std::string text = left_out_text(*dataset, packed); !text.empty())
      look_.setup.warnings.push_back(text);
    return dataset;
  }

  void see_data() {
    if (look_.recipe.dataset) errors_.attempt([&] { see_training_data(*look_.recipe.dataset); });
    for (const DatasetSection& section : look_.recipe.validation)
      errors_.attempt([&] {
        if (look_.model && !section.packed) check_length(section, look_.model->spec->facts());
        if (auto set = open(section, section.packed ? look_.recipe.packed_validation : PackedSection{}))
          look_.validation.push_back({section.name, std::move(*set)});
      });
  }

  void see_training_data(const DatasetSection& section) {
    if (look_.model && look_.recipe.packed.rules.size == 0)
      check_length(section, look_.model->spec->facts());  // of packs: each sample
    look_.dataset = open(section, look_.recipe.packed);
    if (look_.model && look_.dataset && look_.dataset->holds_bytes())
      note_bytes(look_.model->origin, look_.model->directory, look_.setup.warnings);
  }

  void count_steps() {
    if (const std::string text = no_validation_text(look_.recipe); !text.empty())
      look_.setup.warnings.push_back(text);
    if (!look_.dataset) return;
    check_batch(look_.recipe.steps, look_.dataset->size());
    look_.scheduler.emplace(look_.recipe.steps, look_.setup.sizes.dp, look_.dataset->size());
    look_.rates.emplace(look_.recipe.lr_schedule, look_.recipe.optimizer.adamw,
                        look_.scheduler->total_steps());
  }

  PluginRegistry& plugins_;
  const bool another_;
  std::string not_on_device_;  // of the model's attention over documents
  Errors errors_;
  Look look_;
};

}  // namespace

Look look_at(const Node& configuration, PluginRegistry& plugins, int world_size, Machine machine) {
  return Walk(plugins, machine).go(configuration, world_size);
}

}  // namespace heddle
