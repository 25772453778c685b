// Compares the size of a run's checkpoints with the free disk space.
#include "lib/run/checkpointing/disk_space.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "heddle/base/text.h"
#include "lib/run/checkpointing/resume.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// Returns the free bytes on the disk of `place`, which may not exist yet; empty: unknown.
std::optional<double> free_bytes(const fs::path& place) {
  std::error_code failed;
  fs::path there = fs::absolute(place, failed);
  while (there.has_relative_path() && !fs::exists(there, failed)) there = there.parent_path();
  const fs::space_info space = fs::space(there, failed);
  if (failed || space.available == std::numeric_limits<uintmax_t>::max()) return std::nullopt;
  return static_cast<double>(space.available);
}

// Returns the maximum number of new checkpoints on the disk at one time.
int64_t most_at_once(const RunSpec& run) {
  const CheckpointSection& section = run.recipe.checkpoint;
  const int64_t first = run.resume ? run.resume->position.step : 0;
  const int64_t saves = run.scheduler.saves_from(first);
  if (!section.max_recent) return saves;
  const auto there = static_cast<int64_t>(checkpoints_in(section.directory).size());
  const int64_t best = section.best_set ? 1 : 0;
  return std::min(saves, std::max<int64_t>(1, *section.max_recent + 1 + best - there));
}

// Returns the settings that would save space. With one checkpoint kept, the next one is written before the
// old one is removed, so saving less often does not help.
std::string less_space(const CheckpointSection& section, bool exports) {
  if (!section.max_recent)
    return "set checkpoint.max_recent_checkpoints, or save less often with step_scheduler.ckpt_every_steps";
  return (*section.max_recent > 1
              ? "lower checkpoint.max_recent_checkpoints, which is " + std::to_string(*section.max_recent)
              : "free disk space, or set checkpoint.checkpoint_dir to a directory on a larger disk") +
         (exports ? ", or skip the export with checkpoint.save_consolidated: false" : "");
}

}  // namespace

std::string space_text(const CheckpointSection& section, const SpaceNeed& need) {
  return "the checkpoints of this run take " + bytes_text(need.total) + " in " + section.directory + " (" +
         std::to_string(need.count) + " of " + bytes_text(need.checkpoint) + "), and the disk has " +
         bytes_text(need.free) + ": " + less_space(section, need.exports);
}

std::string disk_space_warning(const RunSpec& run) {
  const CheckpointSection& section = run.recipe.checkpoint;
  if (!section.enabled) return "";
  const int64_t count = most_at_once(run);
  if (count == 0) return "";
  const bool every = run.exports == CheckpointSection::Export::every;
  const bool exports = run.exports != CheckpointSection::Export::never;
  const auto one = static_cast<double>(run.saved.checkpoint + (every ? run.saved.model : 0));
  const double all =
      one * static_cast<double>(count) + (exports && !every ? static_cast<double>(run.saved.model) : 0);
  const std::optional<double> free = free_bytes(section.directory);
  if (!free || all <= *free) return "";
  return space_text(section, {count, one, all, *free, exports});
}

}  // namespace heddle
