// Finds a model on disk.
#include "lib/run/model/find_model.h"

#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/data/hub_directory.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/checkpoint_name.h"
#include "lib/run/model/foreign_checkpoint.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::optional<ModelPlace> sharded_at(const fs::path& directory) {
  const fs::path notes = directory / checkpoint::kHfMetadata;
  if (!is_there(directory / checkpoint::kManifest) || !is_there(notes / "config.json")) return std::nullopt;
  const fs::path beside = (is_there(directory.parent_path()) ? directory.parent_path() : ".") / "optim";
  const bool saved = directory.filename() == "model" && is_there(beside / checkpoint::kManifest);
  return ModelPlace{ModelPlace::Kind::sharded, directory, notes, saved ? beside : fs::path()};
}

// Returns the directory of the base model in its revision. A relative path is relative to the current
// directory, as in PEFT, or to a parent of the adapter. Another snapshot does not replace a revision.
fs::path base_path(const AdapterConfig& config, const fs::path& file) {
  const fs::path named = config.base, place = hub_directory(named, HubKind::model, config.revision);
  std::error_code ignored;
  if (named.is_absolute() || place != named || is_there(place)) return place;
  const fs::path adapter = fs::absolute(file, ignored).parent_path();
  for (fs::path at = adapter; at.has_relative_path(); at = at.parent_path())
    if (fs::is_directory(at / named, ignored) && !fs::equivalent(at / named, adapter)) return at / named;
  if (config.revision.empty()) return place;
  throw Error(ErrorCode::input, file.string(),
              "base_model_name_or_path is " + config.base + " with the revision " + config.revision +
                  ", which is not in the hub's cache",
              "download it with `hf download " + config.base + " --revision " + config.revision + "`");
}

ModelPlace base_of_adapter(const fs::path& base, const fs::path& file) {
  try {
    return find_model(base);
  } catch (const Error& error) {
    throw Error(error.code(), file.string(),
                "base_model_name_or_path: " + error.where() + " " + error.message(), error.hint());
  }
}

// Finds the base of an adapter. If the base has random weights, it is in the checkpoint next to the adapter.
ModelPlace model_of_adapter(const fs::path& directory) {
  const fs::path file = directory / kAdapterConfig;
  const AdapterConfig config = read_adapter_config(directory);
  const fs::path base = config.base.empty() ? fs::path() : base_path(config, file);
  if (is_there(base) && fs::equivalent(base, directory))
    throw Error(ErrorCode::input, file.string(), "base_model_name_or_path names the adapter itself",
                "set it to the base model's directory");
  std::optional<ModelPlace> place =
      base.empty() ? sharded_at(directory) : std::optional(base_of_adapter(base, file));
  if (!place)
    throw Error(ErrorCode::input, file.string(), "has no base_model_name_or_path",
                "set base_model_name_or_path to the base model's directory");
  place->adapters.push_back(directory);
  return *place;
}

// Looks at a directory and its files, not at subdirectories.
std::optional<ModelPlace> model_at(const fs::path& directory) {
  if (is_there(directory / kAdapterConfig)) return model_of_adapter(directory);
  if (auto sharded = sharded_at(directory)) return sharded;
  if (!is_there(directory / "config.json")) return std::nullopt;
  const bool weights =
      is_there(directory / "model.safetensors") || is_there(directory / "model.safetensors.index.json");
  if (weights || !foreign_checkpoint(directory))
    return ModelPlace{ModelPlace::Kind::hugging_face, directory, directory, {}};
  return std::nullopt;
}

std::vector<fs::path> places_of(const fs::path& checkpoint) {
  return {checkpoint, checkpoint / "model", checkpoint / "model" / "consolidated"};
}

std::optional<ModelPlace> model_of(const fs::path& checkpoint) {
  for (const fs::path& place : places_of(checkpoint))
    if (auto found = model_at(place)) return found;
  return std::nullopt;
}

// Returns the checkpoint with the most steps that contains a model.
std::optional<ModelPlace> newest_in(const fs::path& root) {
  std::optional<ModelPlace> newest;
  int64_t most = -1;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, failed)) {
    const std::optional<int64_t> steps = steps_of(entry.path());
    if (!steps || *steps <= most) continue;
    if (auto found = model_of(entry.path())) {
      newest = std::move(found);
      most = *steps;
    }
  }
  return newest;
}

[[noreturn]] void refuse(const fs::path& path) {
  if (const auto foreign = foreign_checkpoint(path)) throw *foreign;
  std::string looked;
  for (const fs::path& place : places_of(path)) looked += (looked.empty() ? "" : ", ") + place.string();
  throw Error(ErrorCode::input, path.string(),
              "contains no model: it has neither a config.json nor a " + std::string(checkpoint::kManifest) +
                  " with its " + checkpoint::kHfMetadata + " in " + looked + ", and no checkpoint of a run",
              "give a Hugging Face directory, the checkpoint_dir of a run, or a checkpoint in it");
}

}  // namespace

ModelPlace find_model(const fs::path& given) {
  const fs::path name = given.has_filename() ? given : given.parent_path();  // "run/" becomes "run"
  const fs::path path = hub_directory(name, HubKind::model);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (const auto foreign = foreign_checkpoint(path)) throw *foreign;
    std::string hint =
        "name a Hugging Face directory (config.json and safetensors), the checkpoint_dir of a run, or a "
        "checkpoint in it";
    const std::string named = is_there(path) ? "" : hub_directory_hint(given, HubKind::model);
    if (!named.empty()) hint += "; " + named;
    throw Error(ErrorCode::input, path.string(), is_there(path) ? "is not a directory" : "does not exist",
                hint);
  }
  if (auto found = model_of(path)) return *found;
  const std::string latest = checkpoint::pointed(path / "LATEST");
  if (!latest.empty())
    if (auto found = model_of(path / latest)) return *found;
  if (auto found = newest_in(path)) return *found;
  refuse(path);
}

bool has_byte_tokenizer(const ModelPlace& model) {
  std::error_code ignored;
  if (!fs::is_regular_file(model.notes / kTokenizerNote, ignored)) return false;
  return checkpoint::read_hf_json(model.notes / kTokenizerNote).value("type", "") == "bytes";
}

}  // namespace heddle
