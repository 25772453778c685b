// All of a run that is known before its ranks start: keys checked, files opened.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"
#include "lib/data/rows.h"
#include "lib/data/sample_order.h"
#include "lib/report/header.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"
#include "lib/run/spec/lr_schedule.h"
#include "lib/run/spec/position.h"
#include "lib/run/spec/step_scheduler.h"
#include "lib/run/trace/request.h"

namespace heddle {

struct ValidationSet {
  std::string name;  // "" or the NAME of validation_dataset_NAME
  Rows dataset;
};

// A checkpoint that the run resumes from.
struct Resume {
  std::filesystem::path directory;
  Position position;
  Losses losses;
};

// A recipe on its world: what each rank is given. Made by preflight (prepare_run()) and by nothing else.
struct RunSpec {
  // The order of the last epoch that was asked for: a stored one takes time to make.
  struct LastOrder {
    std::mutex mutex;
    int64_t epoch = 0;
    std::optional<SampleOrder> last;
  };

  Recipe recipe;
  Setup setup;
  std::optional<RunPipeline> pipeline;
  PreparedModel model;
  Rows dataset;
  std::vector<ValidationSet> validation;
  StepScheduler scheduler;
  LrSchedule rates;
  Shuffle shuffle = Shuffle::off;  // as the recipe and the data set have it together
  // When the run exports its model for transformers.
  CheckpointSection::Export exports = CheckpointSection::Export::never;
  std::filesystem::path metrics = {};
  std::optional<Resume> resume = std::nullopt;      // empty: from the first step
  std::string latest = "";                          // what LATEST named when the beginning was looked for
  std::optional<double> peak_flops = std::nullopt;  // of a rank, from the command line
  std::set<int64_t> taken = {};                     // steps to come whose checkpoint's name is another one's
  TraceRequest trace = {};
  std::filesystem::path samples_tokenizer = {};  // directory, of validation_samples; empty: tokens are bytes
  SavedBytes saved = {};                         // of one checkpoint, and of one model for transformers
  std::map<std::string, std::string> content = {}, settings = {};  // content_of() and settings_of()
  std::map<std::string, ModelIdentity> bases = {};                 // identities_of() the model
  // Digests of the files that every rank reads for itself, by their names in messages. Empty: the run has one
  // rank.
  std::map<std::string, std::string> files = {};
  std::optional<ModelSize> size = std::nullopt;  // of the rank that holds most; empty: not known
  std::shared_ptr<LastOrder> order = std::make_shared<LastOrder>();
};

// The order of the training rows in an epoch.
SampleOrder order_of(const RunSpec& run, int64_t epoch);

// Where a run's metrics go unless --metrics says: training.jsonl in checkpoint_dir.
std::filesystem::path default_metrics(const CheckpointSection& section);

// What every rank must have alike: ranks with another file or other overrides are named before the first
// step.
std::string fingerprint(const RunSpec& run);

}  // namespace heddle
