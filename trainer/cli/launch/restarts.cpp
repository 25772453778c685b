// Restart counts and the checkpoint to resume from.
#include "trainer/cli/launch/restarts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "heddle/checkpoint/sharded.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Returns the next step of a checkpoint; -1: no checkpoint.
int64_t step_of(const fs::path& checkpoint) {
  std::error_code ignored;
  const fs::path file = checkpoint / kPositionFile;
  return fs::exists(file, ignored) ? read_position(file).step : -1;
}

}  // namespace

bool was_started_before() {
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::atoi(count) > 0) return true;
  }
  return false;
}

Recipe from_what_was_saved(Recipe recipe) {
  CheckpointSection& section = recipe.checkpoint;
  if (!section.enabled || !section.restore_from || *section.restore_from == "LATEST") return recipe;
  const fs::path root = section.directory;
  std::string named = *section.restore_from;
  if (named == "LOWEST_VAL") named = checkpoint::pointed(root / named);
  const std::string latest = checkpoint::pointed(root / "LATEST");
  if (latest.empty() || step_of(root / latest) <= std::max(step_of(root / named), step_of(named)))
    return recipe;
  section.restore_from = latest;
  recipe.configuration = config::with_override(recipe.configuration, "checkpoint.restore_from", latest);
  return recipe;
}

std::string restart_line(int restart, int most, const RunSpec& run) {
  return "restart " + std::to_string(restart) + " of " + std::to_string(most) +
         ": all ranks are started again " +
         (run.resume ? "and resume from " + run.resume->directory.string()
                     : std::string("and start at the first step, because nothing was saved yet"));
}

}  // namespace heddle::cli
