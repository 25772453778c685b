// Compares the names of existing checkpoints with the steps that will be saved.
#include "lib/run/checkpointing/conflicts.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "heddle/base/error.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/save.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// Returns the steps from `first` on whose checkpoint name is taken, by a complete checkpoint or another
// entry.
std::set<int64_t> taken_from(const RunSpec& run, int64_t first) {
  std::set<int64_t> out;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(run.recipe.checkpoint.directory, none)) {
    const std::optional<int64_t> step = steps_of(entry.path());
    if (!step || *step < first || *step >= run.scheduler.total_steps()) continue;
    if (directory_of(run, run.scheduler.at(*step)).filename() == entry.path().filename()) out.insert(*step);
  }
  return out;
}

// Explains that LATEST names a checkpoint of another model, so the run starts at step 1.
std::string latest_of_another(const RunSpec& run) {
  if (run.resume || run.latest.empty()) return "";
  const std::string other = other_model(fs::path(run.recipe.checkpoint.directory) / run.latest, run);
  return other.empty() ? "" : "; LATEST names " + run.latest + ", a checkpoint of another model: " + other;
}

std::string what_to_do(const RunSpec& run, bool is_other_model) {
  const std::string fresh = "set checkpoint.checkpoint_dir to a new directory";
  if (is_other_model) return fresh;
  const std::string own = latest_of_another(run).empty() ? "" : newest_of_this_model(run);
  if (!own.empty())
    return "--checkpoint.restore_from " + own + " resumes from the newest checkpoint of this model. Or " +
           fresh;
  return "remove this checkpoint and all later ones, or " + fresh +
         (run.resume ? " and checkpoint.restore_from to " + run.resume->directory.string() : "");
}

}  // namespace

std::set<int64_t> taken_checkpoints(const RunSpec& run) {
  if (!run.recipe.checkpoint.enabled) return {};
  const int64_t first = run.resume ? run.resume->position.step : 0;
  std::set<int64_t> taken = taken_from(run, first);
  const auto met = std::find_if(taken.begin(), taken.end(),
                                [&](int64_t step) { return run.scheduler.at(step).checkpoint; });
  if (met == taken.end()) return taken;
  const fs::path there = directory_of(run, run.scheduler.at(*met));
  const std::string other = other_model(there, run);
  throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
              there.string() + " already exists and would be overwritten at step " +
                  std::to_string(*met + 1) + ", because the run starts at step " + std::to_string(first + 1) +
                  (other.empty() ? latest_of_another(run) : "; it holds another model: " + other),
              what_to_do(run, !other.empty()));
}

}  // namespace heddle
