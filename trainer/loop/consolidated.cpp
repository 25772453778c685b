// The model of a checkpoint as transformers reads it.
#include "trainer/loop/consolidated.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/export.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/together.h"

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

}  // namespace

void write_consolidated(const Job& job, const fs::path& model, Rendezvous& meeting, const std::string& key) {
  checkpoint::HfExport what;
  what.sharded = model;
  what.directory = model / "consolidated";
  what.config_json = job.model.config_json;
  checkpoint::export_hf(what, meeting, key);
  checkpoint::on_first(meeting, "notes/" + key, [&] { write_notes(job, what.directory); });
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
