// All of a run that is known before its ranks start: words checked, files opened.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/engine/engine.h"
#include "heddle/model/family.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "trainer/data/token_dataset.h"
#include "trainer/loop/lr_schedule.h"
#include "trainer/loop/step_scheduler.h"
#include "trainer/loop/stop_wish.h"
#include "trainer/metrics/model_size.h"
#include "trainer/recipe/recipe.h"
#include "trainer/saves/position.h"
#include "trainer/trace/request.h"

namespace heddle {

// What the run trains, and where its values come from.
struct JobModel {
  std::shared_ptr<const ModelSpec> spec;
  checkpoint::HfOrigin origin;  // what exports carry over: config.json, tokenizer, names of files, dtypes
  ParameterSource source;       // empty: random weights
  std::vector<std::string> tensors;  // that are there to be loaded
  at::ScalarType dtype = at::kFloat;
  std::filesystem::path directory;  // of a pretrained model; empty: random weights
  int64_t checkpoint_bytes = 0;     // of a checkpoint: parameters and the optimizer's state
  int64_t export_bytes = 0;         // of the model for transformers
};

struct ValidationSet {
  std::string name;  // "" or the NAME of validation_dataset_NAME
  TokenDataset dataset;
};

// How a batch goes through the stages of a pipeline.
struct JobPipeline {
  std::string schedule;  // its name, or the file of its table
  int stages = 1, microbatches = 1;
  int64_t microbatch_size = 1;  // samples
};

// A checkpoint that the run goes on from.
struct Resume {
  std::filesystem::path directory;
  Position position;
  Losses losses;
};

struct Job {
  Node configuration;  // with the overrides
  Recipe recipe;
  Setup setup;
  std::optional<JobPipeline> pipeline;
  JobModel model;
  TokenDataset dataset;
  std::vector<ValidationSet> validation;
  StepScheduler scheduler;
  LrSchedule rates;
  std::filesystem::path metrics;
  std::optional<Resume> resume = std::nullopt;      // empty: from the first step
  std::string latest = "";                          // what LATEST named when the beginning was looked for
  std::optional<double> peak_flops = std::nullopt;  // of a rank, from the command line
  std::set<int64_t> taken = {};                     // steps to come whose checkpoint's name is another one's
  TraceRequest trace = {};
  std::map<std::string, std::string> content = {}, settings = {};  // content_of() and settings_of()
  std::optional<ModelSize> size = std::nullopt;  // of the rank that holds most; empty: not known
};

// The files that the command line names.
struct NamedOutputs {
  std::filesystem::path metrics;  // empty: training.jsonl in checkpoint_dir
  std::filesystem::path trace;    // empty: none
};

// What look_at() sees of a run on this machine, and the checkpoint that it goes on from. local_ranks: of the
// run, on this machine. Throws Error before any rank starts.
Job prepare_job(const Node& configuration, PluginRegistry& plugins, int world_size,
                const NamedOutputs& named = {}, int local_ranks = 1);

// Where a run's metrics go unless --metrics says: training.jsonl in checkpoint_dir.
std::filesystem::path default_metrics(const CheckpointSection& section);

// What every rank must have alike: ranks with another file or other overrides are named before the first
// step.
std::string fingerprint(const Job& job);

// Throws Error{input} where a token of the data is not in the model's vocabulary; see check_tokens() of the
// datasets. For one rank, which has the lock of checkpoint_dir where anything is saved.
void check_tokens(const Job& job);

// Runs this rank of the job. Rank 0 writes metrics and progress, every rank its part of checkpoints. Where
// the wish of any rank says so, all of them save after one step and return. Returns the signal that ended the
// run before its last step, the same on every rank; 0: all steps are done.
int run_rank(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish);

}  // namespace heddle
