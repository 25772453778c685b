// What a recipe's sections allow of the model and of each other.
#include "lib/run/preflight/checks.h"

#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/preflight/open_data.h"

namespace heddle {

void check_length(const DatasetSection& section, const ModelFacts& model) {
  if (section.sequence_length <= model.max_positions) return;
  throw Error(ErrorCode::config, section.length_where,
              "seq_len " + std::to_string(section.sequence_length) + " is longer than the model's " +
                  positions_text(model),
              "make " + section.section.path() + ".seq_len smaller" + or_more_positions(model));
}

void refuse_none_left(const DatasetSection& section, int64_t samples) {
  throw Error(ErrorCode::config, section.where,
              "validation_dataloader.drop_last leaves none of its " + std::to_string(samples) +
                  " samples: they do not fill a microbatch",
              "give more samples, a smaller validation_dataloader.batch_size, or drop_last: false");
}

bool overlaps(const ScheduleTable& table) {
  return std::any_of(table.begin(), table.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& action) { return action.overlaps_next; });
  });
}

void check_staging(const CheckpointSection& section) {
  if (!section.enabled || !section.staging_dir) return;
  if (checkpoint::on_one_file_system(*section.staging_dir, section.directory)) return;
  throw Error(ErrorCode::config, section.staging_where,
              "staging_dir " + *section.staging_dir + " is on another file system than checkpoint_dir " +
                  section.directory + ", so a checkpoint cannot be renamed from the one to the other",
              "name a directory beside checkpoint_dir, or leave checkpoint.staging_dir out");
}

}  // namespace heddle
