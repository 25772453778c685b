// What is known of a run before any rank starts, found in the same way for `heddle train` and `heddle check`.
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

// What is known of a run. Empty is what another machine has; on this one only data that are not prepared and
// are not to be.
struct Preflight {
  Recipe recipe;  // with what plugins read of it
  Setup setup;    // with the warnings of the whole chain
  Plan plan;
  std::optional<PreparedModel> model;
  std::optional<RunPipeline> pipeline;
  SavedBytes saved;  // of one checkpoint
  CheckpointSection::Export exports = CheckpointSection::Export::never;
  std::optional<Rows> dataset;
  Shuffle shuffle = Shuffle::off;
  std::vector<ValidationSet> validation;
  std::filesystem::path samples_tokenizer;  // as in a RunSpec
  std::optional<StepScheduler> scheduler;   // empty where the number of samples is not known
  std::optional<LrSchedule> rates;
};

// Checks the recipe against the world and the plugins, refuses what is not built by its name, and opens the
// files of the model and of the data. Throws Error, with those that the recipe has kept.
Preflight preflight(const Recipe& recipe, PluginRegistry& plugins, int world_size, Machine machine,
                    const PreparationOptions& preparation = {});

// What a command line says of a run beside its recipe.
struct RunOptions {
  std::filesystem::path metrics = {};  // empty: training.jsonl in checkpoint_dir
  TraceRequest trace = {};
  std::optional<double> peak_flops = std::nullopt;  // of a rank
  bool writes_here = true;                          // false: this process is not rank 0, and checks no output
  int local_ranks = 1;                              // of the run, on this machine
  PreparationOptions preparation = {};
  std::chrono::milliseconds patience =
      std::chrono::seconds(5);  // for a run that still saves in checkpoint_dir
};

// The run on this machine that preflight() has checked, with the checkpoint that it resumes from. Throws
// Error.
RunSpec spec_of(Preflight checked, const RunOptions& options);

// preflight() on this machine, spec_of(), and what a rank will hold. Throws Error before any rank starts.
RunSpec prepare_run(const Recipe& recipe, PluginRegistry& plugins, int world_size,
                    const RunOptions& options = {});

// Collects the files and directories that the run writes: what the command line names, checkpoint_dir with
// what lies in it beside checkpoints, and staging_dir. Throws Error{usage} or Error{config} where
// refuse_outputs() does, where a named file has the name of a checkpoint, and where checkpoint_dir is the
// directory of the model that the run starts from. Nothing is written.
void refuse_outputs(const RunSpec& run, const RunOptions& options);

}  // namespace heddle
