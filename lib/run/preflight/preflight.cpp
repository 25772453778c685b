// Reads the configuration, opens the model and the data, and asks the plan about them.
#include "lib/run/preflight/preflight.h"

#include <algorithm>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/checkpointing/consolidated.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/model/tokenizer_files.h"
#include "lib/run/preflight/checks.h"
#include "lib/run/preflight/no_effect.h"
#include "lib/run/preflight/open_data.h"
#include "lib/run/preflight/open_texts.h"
#include "lib/run/preflight/place_of_key.h"
#include "lib/run/recipe/readers.h"
#include "lib/train/step_parts.h"

namespace heddle {
namespace {

class PreflightBuilder {
 public:
  PreflightBuilder(Recipe recipe, PluginRegistry& plugins, Machine machine)
      : plugins_(plugins), another_(machine == Machine::another), errors_(recipe.errors) {
    out_.recipe = std::move(recipe);
  }

  // Each line is attempted where what it needs is known.
  Preflight build(int world_size) {
    const Recipe& recipe = out_.recipe;
    const Node& configuration = recipe.configuration;
    read_plugin_sections(out_.recipe, plugins_, errors_);
    const bool is_valid =
        errors_.attempt([&] { out_.setup = engine::validate(configuration, plugins_, world_size); });
    out_.setup.warnings.insert(out_.setup.warnings.end(), recipe.warnings.begin(), recipe.warnings.end());
    errors_.attempt([&] { find_optimizer(); });
    if (is_valid) errors_.attempt([&] { refuse_axes(out_.recipe.sections, out_.setup); });
    read_datasets();
    errors_.attempt([&] { engine::refuse_not_built(configuration, out_.recipe.not_built); });
    const bool is_planned = is_valid && errors_.attempt([&] { at_keys(configuration, [&] { choose(); }); });
    errors_.attempt([&] { require_data(configuration); });
    if (!another_) errors_.attempt([&] { check_staging(out_.recipe.checkpoint); });
    if (recipe.is_read("model")) errors_.attempt([&] { open_model(); });
    const bool has_rows = recipe.is_read("step_scheduler", "local_batch_size");
    if (out_.model && is_planned && optimizer_ && has_rows && are_sections_read())
      errors_.attempt([&] { at_keys(configuration, [&] { check_units(); }); });
    see_data();
    if (exported_) errors_.attempt([&] { check_export(); });
    if (is_valid && has_rows && recipe.is_read("step_scheduler", "global_batch_size"))
      errors_.attempt([&] { check_split(recipe.steps, out_.setup.sizes.dp); });
    errors_.attempt([&] { find_samples_tokenizer(); });
    const bool has_rates = optimizer_ && recipe.is_read("optimizer") && recipe.is_read("lr_scheduler");
    if (is_valid && has_rates && recipe.is_read("step_scheduler")) errors_.attempt([&] { count_steps(); });
    errors_.raise();
    return std::move(out_);
  }

 private:
  void find_samples_tokenizer() {
    const SamplesSection& section = out_.recipe.samples;
    if (section.prompts.empty()) return;
    check_samples(section, out_.setup.sizes);
    const StepSection& steps = out_.recipe.steps;
    if (!steps.val_every_steps && !steps.validate_on_checkpoint)
      out_.setup.warnings.push_back(section.where +
                                    ": no validation comes in this run, so no prompt is answered; set "
                                    "step_scheduler.val_every_steps");
    if (out_.model && out_.dataset)
      out_.samples_tokenizer = samples_tokenizer(section, out_.dataset->samples().tokenizer(), *out_.model);
  }

  bool are_sections_read() const {
    return std::all_of(out_.recipe.others.begin(), out_.recipe.others.end(),
                       [&](const Node::Entry& section) { return out_.recipe.is_read(section.first); });
  }

  void require_data(const Node& configuration) const {
    const Node* section = configuration.find("dataset");
    if (section != nullptr && !section->is_null()) return;
    throw Error(
        ErrorCode::config, configuration.where(), "the section dataset is missing",
        "dataset: {file_pattern: train.bin, seq_len: 256}; heddle data makes a token file from a text");
  }

  // Once, also where several sections name it.
  void warn_missing(const std::string& what) {
    std::vector<std::string>& all = out_.setup.warnings;
    const std::string text = "on this machine " + what;
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(text);
  }

  // Of plugins; a set with an error is as if left out.
  void read_datasets() {
    Recipe& recipe = out_.recipe;
    const auto is_read = [&](auto& section) {
      return errors_.attempt([&] { read_dataset(section, plugins_, recipe.not_built); });
    };
    if (recipe.dataset && !is_read(*recipe.dataset)) recipe.dataset.reset();
    std::erase_if(recipe.validation, [&](DatasetSection& section) { return !is_read(section); });
  }

  void find_optimizer() {
    resolve_optimizer(out_.recipe.optimizer, plugins_, out_.recipe.not_built);
    optimizer_ = out_.recipe.optimizer.make();
  }

  // Refuses what is not built; each rank makes a plan of its own.
  void choose() {
    Setup asked = out_.setup;
    if (another_) {
      try {
        engine::choose_device(asked, plugins_);
      } catch (const Error& error) {
        warn_missing(error.message());
      }
      asked.backend = "gloo";
    }
    out_.plan = engine::choose(asked, plugins_);
  }

  void open_model() {
    const std::filesystem::path place = place_of(out_.recipe.model);
    std::error_code ignored;
    if (another_ && !place.empty() && !std::filesystem::exists(place, ignored))
      return warn_missing(place.string() + " is not there: the model is not checked");
    for (const Node& section : other_models(out_.recipe.sections)) {
      RecipeNotes notes;
      const std::filesystem::path other = place_of(recipe::read_model(section, notes));
      if (another_ && !other.empty() && !std::filesystem::exists(other, ignored))
        return warn_missing(other.string() + " is not there: the models are not checked");
    }
    out_.model = prepare_model(out_.recipe, plugins_, out_.setup.warnings);
  }

  // What the model and the batch have to say to the plan, on meta: each rank makes its own units later.
  void check_units() {
    PreparedModel& model = *out_.model;
    CheckpointSection& saves = out_.recipe.checkpoint;
    const bool exports = saves.enabled && out_.recipe.is_read("checkpoint", "save_consolidated") &&
                         saves.save_consolidated != CheckpointSection::Export::never;
    Units units = first_units(model, exports, out_.setup.warnings);
    if (model.added_files() != nullptr) saves.save_consolidated = CheckpointSection::Export::never;
    warn_of_unused(model, units, out_.setup.warnings);
    check_weights(model, units);
    check_groups(units, out_.recipe.optimizer);
    if (exports && saves.save_consolidated != CheckpointSection::Export::never)
      exported_ = manifest_of(units);
    out_.saved = saved_bytes(units, model.elsewhere(), step_config(out_.recipe), *optimizer_);
    const int64_t rows = out_.recipe.steps.local_batch_size;
    engine::check_model(out_.plan, out_.setup, units, rows);
    if (out_.plan.schedule == nullptr) return;
    const PipelineConfig& words = out_.plan.pipeline;
    RunPipeline& pipeline = out_.pipeline.emplace();
    pipeline.schedule = words.table.empty() ? text::lower(words.schedule) : words.table;
    pipeline.stages =
        static_cast<int>(parallel::map_stages(units, out_.plan, out_.setup.sizes.pp).rank_of_stage.size());
    pipeline.microbatch_size = words.microbatch_size;
    pipeline.microbatches = static_cast<int>(rows / words.microbatch_size);
    if (words.overlap &&
        !overlaps(out_.plan.schedule->plan(out_.setup.sizes.pp, pipeline.stages, pipeline.microbatches)))
      out_.setup.warnings.push_back(words.where + ".pp_overlap has no effect: the schedule '" +
                                    pipeline.schedule + "' overlaps no actions");
    if (words.post_validation) train::check_can_undo(words.where, *optimizer_, out_.recipe.norm_type);
  }

  // Plans an export after the data have changed what it holds: what it refuses is refused before the first
  // step.
  void check_export() const {
    const PreparedModel& model = *out_.model;
    (void)checkpoint::plan_hf(*exported_, model.origin, export_choice(out_.recipe.checkpoint),
                              model.spec.get());
  }

  int64_t samples_wanted(bool validation) const {
    const StepSection& steps = out_.recipe.steps;
    const int64_t count = steps.max_steps.value_or(0);
    return (validation ? count / steps.val_every_steps.value_or(1000) : count) * steps.global_batch_size;
  }

  DataFacts facts_for(const DatasetSection& section, const PackedSection& packed) {
    DataFacts facts;
    facts.seed = static_cast<uint64_t>(out_.recipe.seed);
    facts.local_batch_size = out_.recipe.steps.local_batch_size;
    facts.pack_size = packed.rules.size;
    facts.validation = !out_.recipe.dataset || section.where != out_.recipe.dataset->where;
    facts.samples_wanted = samples_wanted(facts.validation);
    facts.warnings = &out_.setup.warnings;
    if (!out_.model) return facts;
    facts.vocabulary = out_.model->spec->facts().vocabulary;
    facts.model_directory = out_.model->directory;
    const auto& files = out_.model->origin.files;
    if (const auto own = files.find("tokenizer.json"); own != files.end())
      facts.model_tokenizer = own->second;
    return facts;
  }

  // On another machine a warning.
  void refuse_missing(const MissingData& missing) {
    Errors errors;
    for (const MissingData::One& one : missing.all())
      if (another_)
        warn_missing(one.what + ": the data is not checked");
      else
        errors.add(Error(missing.code(), one.where, one.what, missing.hint()));
    errors.raise();
  }

  // Empty on another machine where files are missing.
  std::optional<Rows> open(const DatasetSection& section, const PackedSection& packed) {
    try {
      Rows rows = open_dataset(section, out_.recipe, packed, plugins_, facts_for(section, packed));
      const auto model = out_.model ? std::optional(out_.model->spec->facts()) : std::nullopt;
      check_rows(rows, section, packed, model);
      if (out_.model) check_byte_model(rows.samples().tokenizer(), section, *out_.model);
      const std::string larger = model ? larger_tokenizer_text(rows, section, *model) : "";
      for (const std::string& text : {left_out_text(rows), larger})
        if (!text.empty()) out_.setup.warnings.push_back(text);
      return rows;
    } catch (const NotPrepared& error) {
      out_.setup.warnings.push_back(error.where() + " " + error.message());
      return std::nullopt;
    } catch (const MissingData& missing) {
      refuse_missing(missing);
      return std::nullopt;
    }
  }

  // Of a set with a wrong key its files are looked for, and nothing else.
  void look_for_files(const DatasetSection& section) {
    try {
      if (section.target == kTokenFiles) look_for_token_files(section.section);
    } catch (const MissingData& missing) {
      refuse_missing(missing);
    }
  }

  // A run that is refused in any case prepares nothing.
  void see_data() {
    if (!errors_.empty()) out_.recipe.preparation.make = false;
    if (out_.recipe.dataset) errors_.attempt([&] { see_training_data(*out_.recipe.dataset); });
    for (const DatasetSection& section : out_.recipe.validation)
      errors_.attempt([&] {
        if (!section.whole) return look_for_files(section);
        if (out_.model && !section.packed) check_length(section, out_.model->spec->facts());
        auto set = open(section, section.packed ? out_.recipe.packed_validation : PackedSection{});
        if (!set) return;
        if (out_.dataset) check_one_tokenizer(out_.dataset->samples(), set->samples(), section);
        if (set->size() < out_.recipe.whole_validation_samples) refuse_none_left(section, set->size());
        out_.validation.push_back({section.name, std::move(*set)});
      });
  }

  void warn_of_untrained_end(const DatasetSection& section) {
    const std::filesystem::path& notes = out_.model->place.notes;
    std::string text = untrained_end_text(
        *out_.dataset, section, notes.empty() ? std::vector<int64_t>() : stop_tokens(notes, nullptr));
    if (!text.empty()) out_.setup.warnings.push_back(std::move(text));
  }

  void see_training_data(const DatasetSection& section) {
    if (section.texts && out_.model && !another_)
      check_texts(out_.recipe.checkpoint, *out_.model->spec,
                  [&] { return TextSets(out_.recipe, plugins_).of_run(section); });
    if (out_.model && out_.recipe.packed.rules.size == 0)
      check_length(section, out_.model->spec->facts());  // of packs: each sample
    if (!section.whole) return look_for_files(section);
    out_.dataset = out_.recipe.benchmark
                       ? open(for_benchmark(section, plugins_, facts_for(section, {})), out_.recipe.packed)
                       : open(section, out_.recipe.packed);
    if (section.texts && out_.recipe.shuffle == Shuffle::on) out_.recipe.shuffle = Shuffle::torch;
    if (out_.dataset && out_.dataset->samples().sequential()) out_.recipe.shuffle = Shuffle::off;
    note_tokens(section);
  }

  // Adds to exports the tokenizer of the tokens that the model learns.
  void note_tokens(const DatasetSection& section) {
    const NoteFiles own = out_.model ? out_.model->origin.files : NoteFiles();
    if (out_.model && out_.dataset && out_.dataset->samples().tokenizer().holds_bytes)
      add_byte_tokenizer(out_.model->origin, out_.model->directory, out_.setup.warnings);
    if (out_.model && out_.dataset && section.texts)
      add_tokenizer(out_.model->origin, out_.model->place.notes,
                    TextSets(out_.recipe, plugins_).tokenizer().directory, out_.setup.warnings);
    if (out_.model && out_.dataset && section.texts) warn_of_untrained_end(section);
    const Node* chat = out_.model && section.texts ? section.section.find("chat_template") : nullptr;
    if (chat != nullptr && chat->kind() == Node::Kind::text)
      add_chat_template(out_.model->origin, chat->as_text(), chat->where());
    if (!out_.model) return;
    try {
      note_end_tokens(out_.model->origin.files, own,
                      out_.dataset ? out_.dataset->samples().tokenizer().end_token : -1);
    } catch (const Error& error) {  // names a file of the model
      throw Error(error.code(), (out_.model->place.notes / error.where()).string(), error.message(),
                  error.hint());
    }
  }

  void count_steps() {
    if (const std::string text = no_validation_text(out_.recipe); !text.empty())
      out_.setup.warnings.push_back(text);
    if (!out_.dataset) return;
    const int64_t samples = out_.dataset->size();
    check_batch(out_.recipe.steps, samples, out_.dataset->packing() ? out_.dataset->used_samples() : 0);
    out_.scheduler.emplace(out_.recipe.steps, out_.setup.sizes.dp,
                           samples - samples % out_.recipe.whole_samples);
    out_.rates.emplace(out_.recipe.lr_schedule,
                       engine::Rates{*out_.recipe.optimizer.lr, *out_.recipe.optimizer.weight_decay},
                       out_.scheduler->total_steps());
  }

  PluginRegistry& plugins_;
  const bool another_;
  std::unique_ptr<IOptimizer> optimizer_;         // null: it could not be made
  std::optional<checkpoint::Manifest> exported_;  // of a run that exports
  Errors errors_;
  Preflight out_;
};

}  // namespace

Preflight preflight(Recipe recipe, PluginRegistry& plugins, int world_size, Machine machine) {
  return PreflightBuilder(std::move(recipe), plugins, machine).build(world_size);
}

}  // namespace heddle
