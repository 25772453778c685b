// Validates a run before any rank starts, in the same way for `heddle train` and `heddle check`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "lib/cost/rank_size.h"
#include "lib/data/texts/prepared.h"
#include "lib/run/preflight/findings.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Results of validation. An empty member is on another machine; on this machine, only data that must not be
// prepared can be empty.
struct Preflight {
  Recipe recipe;  // with the values that plugins read from it
  Setup setup;    // with the warnings of all steps
  Plan plan;
  std::optional<PreparedModel> model;
  std::optional<RunPipeline> pipeline;
  SavedBytes saved;  // bytes of one checkpoint
  CheckpointSection::Export exports = CheckpointSection::Export::never;
  std::optional<Rows> dataset;
  Shuffle shuffle = Shuffle::off;
  std::vector<ValidationSet> validation;
  std::filesystem::path samples_tokenizer;  // as in RunSpec
  std::optional<StepScheduler> scheduler;   // empty if the number of samples is unknown
  std::optional<LrSchedule> rates;
};

// Checks the recipe against the world and the plugins, and opens the files of the model and of the data.
// Throws Error, together with the errors that the recipe holds.
Preflight preflight(const Recipe& recipe, PluginRegistry& plugins, int world_size, Machine machine,
                    const PreparationOptions& preparation = {});

// Returns the tokens per row; 0: the data is on another machine and the recipe does not set the length.
int64_t row_length_of(const Preflight& checked);

// Throws Error{usage} at --row-length if the model has fewer positions.
void check_row_length(const PreparedModel& model, int64_t length);

// Settings of a run from the command line.
struct RunOptions {
  std::filesystem::path metrics = {};  // empty: training.jsonl in checkpoint_dir
  TraceRequest trace = {};
  std::optional<double> peak_flops = std::nullopt;  // per rank
  bool writes_here = true;                          // false: this process is not rank 0 and checks no output
  int local_ranks = 1;                              // number of the run's ranks on this machine
  PreparationOptions preparation = {};
  std::chrono::milliseconds patience =
      std::chrono::seconds(5);  // for a run that still saves in checkpoint_dir
};

// Returns the run that preflight() has checked for this machine, with the checkpoint that it resumes from.
// Throws Error.
RunSpec spec_of(Preflight checked, const RunOptions& options);

// Calls preflight() for this machine and spec_of(), and computes the memory per rank. Throws Error before any
// rank starts.
RunSpec prepare_run(const Recipe& recipe, PluginRegistry& plugins, int world_size,
                    const RunOptions& options = {});

// Checks the files and directories that the run writes: those of the command line, checkpoint_dir with its
// files beside checkpoints, and staging_dir. Throws Error{usage} or Error{config} if refuse_outputs() of the
// files does, if a named file has the name of a checkpoint, or if checkpoint_dir is the directory of the
// model that the run starts from. Writes nothing.
void refuse_outputs(const RunSpec& run, const RunOptions& options);

}  // namespace heddle
