// What a checkpoint holds, and writing it.
#include "trainer/loop/save.h"

#include <utility>

#include "heddle/checkpoint/publish.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/together.h"
#include "trainer/loop/consolidated.h"
#include "trainer/loop/keep.h"
#include "trainer/loop/resume.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

void write_beside(const Job& job, const Saving& saving, const fs::path& stage) {
  checkpoint::keep_origin(stage / "model" / checkpoint::kHfMetadata, job.model.origin);
  checkpoint::write_text(stage / "losses.json", to_json(saving.losses));
  checkpoint::write_text(stage / "config.yaml", config::to_yaml(job.configuration));
  checkpoint::write_text(stage / kPositionFile, to_json(saving.position));
}

}  // namespace

bool saves_model(const CheckpointSection& section, const Moment& moment) {
  if (!section.enabled || section.save_consolidated == CheckpointSection::Export::never) return false;
  return moment.last || (moment.checkpoint && section.save_consolidated == CheckpointSection::Export::every);
}

fs::path directory_of(const Job& job, const Moment& moment) {
  const std::string name = "epoch_" + std::to_string(moment.epoch) + "_step_" + std::to_string(moment.step);
  return fs::path(job.recipe.checkpoint.directory) / name;
}

void Saver::save(engine::Model& model, Step& step, const Moment& moment, const Losses& losses) {
  write({directory_of(job_, moment), position_after(job_, moment), losses,
         saves_model(job_.recipe.checkpoint, moment), model_parts(model.stages), optimizer_parts(step)});
}

void Saver::write(const Saving& saving) {
  const fs::path &directory = saving.directory, stage = checkpoint::stage_of(directory);
  const std::string key = directory.filename().string();
  checkpoint::on_first(meeting_, "stage/" + key, [&] {
    checkpoint::open_stage(directory);
    fs::create_directories(stage / "model");
    fs::create_directories(stage / "optim");
  });
  checkpoint::write_sharded(stage / "model", "model", saving.model, meeting_, key + "/model");
  checkpoint::write_sharded(stage / "optim", "optim", saving.optimizer, meeting_, key + "/optim");
  if (saving.consolidated) write_consolidated(job_, stage / "model", stage / "optim", meeting_, key);
  checkpoint::on_first(meeting_, "publish/" + key, [&] {
    write_beside(job_, saving, stage);
    checkpoint::publish(directory);
    keep(job_.recipe.checkpoint, directory, saving.losses, meeting_.log());
  });
}

}  // namespace heddle
