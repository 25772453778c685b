// Updates the pointers of checkpoint_dir and removes old checkpoints.
#include "lib/run/checkpointing/keep.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/checkpointing/resume.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemoved = ".removed";  // suffix of a directory that is being removed

bool is_better(const fs::path& root, const std::string& set, const Losses& losses) {
  const auto found = losses.validation.find(set);
  if (found == losses.validation.end() || !std::isfinite(found->second)) return false;
  const std::string best = checkpoint::pointed(root / "LOWEST_VAL");
  if (best.empty()) return true;
  const auto lowest = validation_loss(root / best / "losses.json", set);
  return !lowest || found->second < *lowest;
}

// Renames the directory durably before its files are removed, so no reader and no power cut leaves it half
// removed under its name. Returns the reason of a failure, or "".
std::string remove_whole(const fs::path& directory) {
  const fs::path gone = directory.string() + kRemoved;
  std::error_code failed;
  fs::remove_all(gone, failed);
  if (!failed) fs::rename(directory, gone, failed);
  if (failed) return failed.message();
  try {
    checkpoint::sync(directory.parent_path());
  } catch (const Error& error) {
    return error.message();
  }
  fs::remove_all(gone, failed);
  return failed ? failed.message() : "";
}

void prune(const fs::path& root, int64_t newest, const Log& log) {
  std::vector<fs::path> all = checkpoints_in(root);
  all.resize(std::max<int64_t>(0, static_cast<int64_t>(all.size()) - newest));
  for (const fs::path& old : all) {
    const std::string name = old.filename().string();
    if (name == checkpoint::pointed(root / "LATEST") || name == checkpoint::pointed(root / "LOWEST_VAL"))
      continue;
    if (const std::string why = remove_whole(old); !why.empty())
      log.warning("checkpoint", old.string() +
                                    " exceeds max_recent_checkpoints and cannot be "
                                    "removed: " +
                                    why);
  }
}

void announce_best(const CheckpointSection& section, const fs::path& directory, const Losses& losses) {
  const fs::path root = directory.parent_path();
  checkpoint::settle(root / "LOWEST_VAL");
  if (section.best_set && is_better(root, *section.best_set, losses))
    checkpoint::announce(root / "LOWEST_VAL", directory.filename().string());
}

}  // namespace

void announce(const CheckpointSection& section, const fs::path& directory, const Losses& losses) {
  checkpoint::announce(directory.parent_path() / "LATEST", directory.filename().string());
  announce_best(section, directory, losses);
}

void keep(const CheckpointSection& section, const fs::path& directory, const Losses& losses, const Log& log) {
  const fs::path root = directory.parent_path();
  const std::string name = directory.filename().string();
  checkpoint::point(root / "LATEST", name);
  announce_best(section, directory, losses);
  checkpoint::settle(root / "LOWEST_VAL");  // the checkpoint that it named may be removed now
  if (section.max_recent) prune(root, *section.max_recent, log);
}

void begin_from(const CheckpointSection& section, const fs::path& checkpoint) {
  const fs::path root = section.directory;
  const std::string name = checkpoint.filename().string();
  std::error_code ignored;
  if (fs::equivalent(checkpoint.parent_path(), root, ignored) && checkpoint::pointed(root / "LATEST") != name)
    checkpoint::point(root / "LATEST", name);
}

void amend(const CheckpointSection& section, const fs::path& directory, const Losses& losses) {
  std::error_code ignored;
  if (!fs::equivalent(directory.parent_path(), section.directory, ignored)) return;
  // first, so that a run that stops between the two calls repeats both
  announce_best(section, directory, losses);
  checkpoint::write_text(directory / "losses.json", to_json(losses));
  checkpoint::settle(directory.parent_path() / "LOWEST_VAL");
}

std::string to_json(const Losses& losses) {
  nlohmann::ordered_json out{{"train_loss", losses.training}};
  if (losses.validation.size() == 1 && losses.validation.begin()->first.empty()) {
    out["val_loss"] = losses.validation.begin()->second;
  } else {
    for (const auto& [set, loss] : losses.validation) out["val_loss"][set.empty() ? "default" : set] = loss;
  }
  return out.dump(1) + "\n";
}

Losses read_losses(const fs::path& file) {
  const auto number = [](const nlohmann::json& value) {  // JSON has no NaN; null stands for it
    return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  };
  Losses out;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return out;
  std::ifstream in(file);
  const auto parsed = nlohmann::json::parse(in, nullptr, false);
  if (!parsed.is_object()) return out;
  out.training = number(parsed.value("train_loss", nlohmann::json()));
  const auto value = parsed.find("val_loss");
  if (value == parsed.end()) return out;
  if (!value->is_object()) out.validation[""] = number(*value);
  if (value->is_object())
    for (const auto& [set, loss] : value->items()) out.validation[set == "default" ? "" : set] = number(loss);
  return out;
}

std::optional<double> validation_loss(const fs::path& file, const std::string& set) {
  const Losses losses = read_losses(file);
  const auto found = losses.validation.find(set);
  if (found == losses.validation.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

bool is_unfinished(const fs::path& directory) {
  std::error_code failed;
  if (!fs::is_directory(fs::symlink_status(directory, failed))) return false;
  if (fs::is_empty(directory, failed)) return true;
  for (const char* part : {"model", "optim", "losses.json", "config.yaml", kPositionFile})
    if (fs::exists(directory / part, failed)) return true;
  return false;
}

std::vector<fs::path> unfinished_in(const fs::path& root) {
  static const text::Pattern kName(R"(epoch_[0-9]{1,18}_step_[0-9]{1,18}\.(incomplete|removed))");
  std::vector<fs::path> out;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, failed))
    if (!kName.match(entry.path().filename().string()).empty()) out.push_back(entry.path());
  return out;
}

}  // namespace heddle
