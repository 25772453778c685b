// Where a run lays its models.
#include "trainer/loop/save.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/export.h"
#include "heddle/checkpoint/file_writer.h"

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

void write_text(const fs::path& file, const std::string& text) {
  checkpoint::FileWriter writer(file);
  writer.write(text.data(), text.size());
  writer.finish();
}

// Notes beside the weights: those of the model that training began from, else that tokens are bytes.
void write_notes(const Job& job, const fs::path& model) {
  for (const char* name : kCarried) {
    std::error_code missing;
    if (!job.model.directory.empty() && fs::exists(job.model.directory / name, missing))
      fs::copy_file(job.model.directory / name, model / name, fs::copy_options::overwrite_existing);
  }
  if (job.model.directory.empty() && job.dataset.holds_bytes())
    write_text(model / kTokenizerNote, kByteTokenizer);
}

// Points LATEST to a directory beside it; a text file where the file system has no links.
void point_latest(const fs::path& directory) {
  const fs::path link = directory.parent_path() / "LATEST", fresh = directory.parent_path() / ".LATEST.new";
  std::error_code failed;
  fs::remove(fresh, failed);
  fs::create_directory_symlink(directory.filename(), fresh, failed);
  if (!failed) return fs::rename(fresh, link);
  write_text(link.string() + ".txt", directory.filename().string() + "\n");
}

void finish_on_disk(const Job& job, const fs::path& directory, const fs::path& model) {
  try {
    write_notes(job, model);
    write_text(directory / "config.yaml", config::to_yaml(job.configuration));
    point_latest(directory);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, error.path1().string(), "cannot be written: " + error.code().message());
  }
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

fs::path save_model(const Job& job, engine::Model& model, const Moment& moment) {
  const fs::path directory = directory_of(job, moment);
  const fs::path consolidated = directory / "model" / "consolidated";
  checkpoint::HfExport what;
  what.directory = consolidated;
  what.config_json = job.model.config_json;
  what.key = directory.filename().string();
  checkpoint::export_hf(model.stages, model.mesh, what);
  if (model.mesh.meeting().rank() == 0) finish_on_disk(job, directory, consolidated);
  return consolidated;
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
