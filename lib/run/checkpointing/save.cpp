// Writes and publishes checkpoints.
#include "lib/run/checkpointing/save.h"

#include <optional>
#include <system_error>
#include <utility>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/checkpointing/consolidated.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/checkpointing/not_finite.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/saved_parts.h"

namespace heddle {

namespace fs = std::filesystem;

bool saves_model(const RunSpec& run, const StepInfo& info) {
  if (!run.recipe.checkpoint.enabled || run.exports == CheckpointSection::Export::never) return false;
  return info.last || (info.checkpoint && run.exports == CheckpointSection::Export::every);
}

fs::path directory_of(const RunSpec& run, const StepInfo& info) {
  const std::string name = "epoch_" + std::to_string(info.epoch) + "_step_" + std::to_string(info.step);
  return fs::path(run.recipe.checkpoint.directory) / name;
}

// Adds checkpoint_dir to the name: runs in different directories may share a staging_dir.
fs::path stages_of(const CheckpointSection& section) {
  if (!section.staging_dir) return section.directory;
  const fs::path directory = fs::absolute(fs::path(section.directory) / ".").lexically_normal();
  return fs::path(*section.staging_dir) / checkpoint::checksum(directory.string());
}

Saver::Saver(const RunSpec& run, Rendezvous& rendezvous, engine::Model& model, Step& step)
    : run_(run),
      rendezvous_(rendezvous),
      model_("model", saved_parts(run, model, Differing::own), rendezvous, "model"),
      optimizer_("optim", state_parts(run, step, model), rendezvous, "optim") {
  if (!run.recipe.checkpoint.is_async) return;
  model_copies_.of(model_.mine(saved_parts(run, model, Differing::own)));
  optimizer_copies_.of(optimizer_.mine(state_parts(run, step, model)));
}

void Saver::save(engine::Model& model, Step& step, const StepInfo& info, const Losses& losses,
                 bool keeps_older) {
  refuse_not_finite(run_, model, info);
  finish();  // checkpoints appear in step order, and only one copy is in memory
  Saving saving{info,
                directory_of(run_, info),
                position_after(run_, info),
                losses,
                saves_model(run_, info),
                keeps_older,
                model_.mine(saved_parts(run_, model, Differing::means)),
                optimizer_.mine(state_parts(run_, step, model))};
  if (!run_.recipe.checkpoint.is_async) return write(saving);
  saving.model = model_copies_.of(saving.model);
  saving.optimizer = optimizer_copies_.of(saving.optimizer);
  if (model.device) model.device->synchronize();
  background_.start([this, saving = std::move(saving)] { write(saving); });
}

void Saver::finish() {
  background_.wait();
}

void Saver::write(const Saving& saving) {
  const fs::path stage =
      stages_of(run_.recipe.checkpoint) / checkpoint::stage_of(saving.directory).filename();
  std::optional<Error> not_exported;
  try {
    write_in(stage, saving);
    if (saving.consolidated) not_exported = write_consolidated(run_, stage, saving.directory, rendezvous_);
    publish(stage, saving);
  } catch (const Error& error) {
    const bool agreed = error.code() != ErrorCode::rank_lost && error.code() != ErrorCode::timeout;
    if (agreed) give_up(stage);
    throw;
  }
  if (not_exported) throw *not_exported;
}

// Every rank has the error, so no rank writes any more: removes the stage to free the disk space.
void Saver::give_up(const fs::path& stage) try {
  checkpoint::on_first(rendezvous_, "give up/" + stage.filename().string(), [&] {
    std::error_code ignored;
    fs::remove_all(stage, ignored);
  });
} catch (const Error&) {
  // The first error is more informative.
}

void Saver::write_in(const fs::path& stage, const Saving& saving) {
  const std::string key = saving.directory.filename().string();
  checkpoint::on_first(rendezvous_, "stage/" + key, [&] {
    checkpoint::open_stage(saving.directory, stage);
    fs::create_directories(stage / "model");
    fs::create_directories(stage / "optim");
  });
  // Errors are exchanged after both parts are written, because ranks differ in the sizes of the parts.
  const auto told = checkpoint::gather_on_first(rendezvous_, "write/" + key, [&] {
    return mesh::pack(std::vector{model_.write(stage / "model", saving.model),
                                  optimizer_.write(stage / "optim", saving.optimizer)});
  });
  checkpoint::on_first(rendezvous_, "manifests/" + key, [&] {
    std::vector<std::string> models, optimizers;
    for (const std::string& rank : told) {
      const std::vector<std::string> both = mesh::unpack(rank);
      models.push_back(both[0]);
      optimizers.push_back(both[1]);
    }
    model_.write_manifest(stage / "model", models);
    optimizer_.write_manifest(stage / "optim", optimizers);
    write_added(run_.model, stage / "model");
  });
}

void Saver::publish(const fs::path& stage, const Saving& saving) {
  const fs::path& directory = saving.directory;
  checkpoint::on_first(rendezvous_, "publish/" + directory.filename().string(), [&] {
    write_beside(saving, stage);
    sync_metrics();
    announce(run_.recipe.checkpoint, directory, saving.losses);
    checkpoint::publish(directory, stage);
    CheckpointSection section = run_.recipe.checkpoint;
    if (saving.keeps_older) section.max_recent.reset();
    keep(section, directory, saving.losses, rendezvous_.log());
  });
  const std::lock_guard lock(published_mutex_);
  published_.push_back(saving.info);
}

std::vector<StepInfo> Saver::published() {
  const std::lock_guard lock(published_mutex_);
  return std::exchange(published_, {});
}

// Syncs the metrics to disk: a run that resumes from the checkpoint does not repeat the earlier lines.
void Saver::sync_metrics() const {
  std::vector<fs::path> files{run_.metrics};
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_.recipe.checkpoint.directory, ignored))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  for (const fs::path& file : files)
    if (fs::is_regular_file(file, ignored)) checkpoint::sync(file);
}

void Saver::write_beside(const Saving& saving, const fs::path& stage) const {
  checkpoint::keep_origin(stage / "model" / checkpoint::kHfMetadata, run_.model.origin);
  checkpoint::write_text(stage / "losses.json", to_json(saving.losses));
  checkpoint::write_text(stage / "config.yaml", config::to_yaml(run_.recipe.configuration));
  Position position = saving.position;
  for (const char* part : {"model", "optim"})
    position.parts[part] = checkpoint::read_manifest(stage / part / checkpoint::kManifest).sum;
  checkpoint::write_text(stage / kPositionFile, to_json(position));
}

}  // namespace heddle
