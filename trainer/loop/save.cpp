// Where a run lays its checkpoints and models.
#include "trainer/loop/save.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/export.h"
#include "heddle/checkpoint/publish.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/together.h"
#include "trainer/loop/resume.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kByteTokenizer = "{\"type\": \"bytes\"}\n";
// What transformers reads besides weights and config.json.
constexpr std::array<const char*, 9> kCarried = {"generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "tokenizer.model",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 kTokenizerNote};

// Notes beside the weights: those of the model that training began from, else that tokens are bytes.
void write_notes(const Job& job, const fs::path& model) {
  for (const char* name : kCarried) {
    std::error_code missing;
    if (!job.model.directory.empty() && fs::exists(job.model.directory / name, missing))
      fs::copy_file(job.model.directory / name, model / name, fs::copy_options::overwrite_existing);
  }
  if (job.model.directory.empty() && job.dataset.holds_bytes())
    checkpoint::write_text(model / kTokenizerNote, kByteTokenizer);
}

std::string written(const Losses& losses) {
  nlohmann::ordered_json out{{"train_loss", losses.training}};
  if (losses.validation.size() == 1 && losses.validation.begin()->first.empty()) {
    out["val_loss"] = losses.validation.begin()->second;
  } else {
    for (const auto& [set, loss] : losses.validation) out["val_loss"][set.empty() ? "default" : set] = loss;
  }
  return out.dump(1) + "\n";
}

void write_beside(const Job& job, const Moment& moment, const Losses& losses, const fs::path& stage) {
  checkpoint::write_text(stage / "losses.json", written(losses));
  checkpoint::write_text(stage / "config.yaml", config::to_yaml(job.configuration));
  checkpoint::write_text(stage / kPositionFile, to_json(position_after(job, moment)));
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

void save_checkpoint(const Job& job, engine::Model& model, Step& step, const Moment& moment,
                     const Losses& losses) {
  const fs::path directory = directory_of(job, moment), stage = checkpoint::stage_of(directory);
  const std::string key = directory.filename().string();
  Rendezvous& meeting = model.mesh.meeting();
  checkpoint::on_first(meeting, "stage/" + key, [&] {
    checkpoint::open_stage(directory);
    fs::create_directories(stage / "model");
    fs::create_directories(stage / "optim");
  });
  checkpoint::write_sharded(stage / "model", "model", model_parts(model.stages), meeting, key + "/model");
  checkpoint::write_sharded(stage / "optim", "optim", optimizer_parts(step), meeting, key + "/optim");
  const bool whole = saves_model(job.recipe.checkpoint, moment);
  const fs::path consolidated = stage / "model" / "consolidated";
  if (whole) {
    checkpoint::HfExport what;
    what.directory = consolidated;
    what.config_json = job.model.config_json;
    what.key = key;
    checkpoint::export_hf(model.stages, model.mesh, what);
  }
  checkpoint::on_first(meeting, "publish/" + key, [&] {
    if (whole) write_notes(job, consolidated);
    write_beside(job, moment, losses, stage);
    checkpoint::publish(directory);
    checkpoint::point(directory.parent_path() / "LATEST", key);
  });
}

fs::path find_model(const fs::path& directory) {
  std::vector<fs::path> places = {directory, directory / "model" / "consolidated",
                                  directory / "LATEST" / "model" / "consolidated"};
  std::string name;
  if (std::ifstream note(directory / "LATEST.txt"); note >> name)
    places.push_back(directory / name / "model" / "consolidated");
  std::string looked;
  for (const fs::path& place : places) {
    std::error_code ignored;
    if (fs::exists(place / "config.json", ignored)) return place;
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  throw Error(ErrorCode::input, directory.string(), "holds no model: there is no config.json in " + looked,
              "give a Hugging Face directory, or the checkpoint_dir of a run that has ended");
}

bool has_byte_tokenizer(const fs::path& model) {
  std::ifstream file(model / kTokenizerNote);
  if (!file) return false;
  const auto note = nlohmann::json::parse(file, nullptr, false);
  return note.is_object() && note.value("type", "") == "bytes";
}

}  // namespace heddle
