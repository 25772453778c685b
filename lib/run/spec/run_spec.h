// Everything about a run that is known before its ranks start.
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

// Checkpoint that a run resumes from.
struct Resume {
  std::filesystem::path directory;
  Position position;
  Losses losses;
};

// Specification of a run that every rank gets. Made by preflight only (prepare_run()).
struct RunSpec {
  // Cache of the order of the last requested epoch, because a stored order takes time to compute.
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
  Shuffle shuffle = Shuffle::off;  // resolved from the recipe and the data set
  // When the run exports its model in the Hugging Face format.
  CheckpointSection::Export exports = CheckpointSection::Export::never;
  std::filesystem::path metrics = {};
  std::optional<Resume> resume = std::nullopt;  // empty: start at the first step
  std::string latest = "";                      // target of LATEST when the start of the run was determined
  std::optional<double> peak_flops = std::nullopt;  // per rank, from the command line
  std::set<int64_t> taken = {};                     // future steps whose checkpoint name is taken
  TraceRequest trace = {};
  // tokenizer directory of validation_samples; empty: tokens are bytes
  std::filesystem::path samples_tokenizer = {};
  SavedBytes saved = {};  // bytes of one checkpoint and of one export
  std::map<std::string, std::string> content = {}, settings = {};  // from content_of() and settings_of()
  std::map<std::string, ModelIdentity> bases = {};                 // from identities_of()
  // Digests of the files that every rank reads itself, by their names in messages. Empty: the run has one
  // rank.
  std::map<std::string, std::string> files = {};
  std::optional<ModelSize> size = std::nullopt;  // of the rank with the highest peak memory; empty: unknown
  std::shared_ptr<LastOrder> order = std::make_shared<LastOrder>();
};

// Returns the order of the training rows in an epoch.
SampleOrder order_of(const RunSpec& run, int64_t epoch);

// Returns the default of --metrics: training.jsonl in checkpoint_dir.
std::filesystem::path default_metrics(const CheckpointSection& section);

// Returns the text that must be equal on all ranks, so that ranks with another file or other overrides are
// reported before the first step.
std::string fingerprint(const RunSpec& run);

}  // namespace heddle
