// Saving: the copy of what the ranks hold after one step, and its way to the disk.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/run/checkpointing/background.h"
#include "lib/run/checkpointing/copies.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// A checkpoint that is being written: all that it holds, apart from the run that goes on.
struct Saving {
  StepInfo info;
  std::filesystem::path directory;  // that it will have
  Position position;
  Losses losses;
  bool consolidated = false;                       // with the model for transformers
  bool keeps_older = false;                        // whatever max_recent_checkpoints says
  std::vector<checkpoint::Part> model, optimizer;  // what this rank writes
};

// Saves checkpoints of one run, on every rank.
class Saver {
 public:
  // The ranks agree on who writes what. With checkpoint.is_async the memory of the copies is taken here too:
  // as much again as this rank writes. A collective.
  Saver(const RunSpec& run, Rendezvous& rendezvous, engine::Model& model, Step& step);

  // checkpoint_dir/epoch_E_step_S: model/ and optim/ as the ranks hold them, where the run stands,
  // losses.json and the configuration; model/consolidated with config.json, safetensors and the notes on the
  // tokenizer where saves_model() says so; then the pointers. It appears when all of it is on the disk. A
  // collective of all ranks; what fails on one throws on every rank. Where the export alone fails, the
  // checkpoint appears without it before that is thrown.
  // With checkpoint.is_async it returns when this rank has its copy, and a thread does the rest while the run
  // goes on; what fails there is thrown on every rank by the next save() or finish().
  // Throws Error{diverged} where a parameter is not finite: nothing is written then.
  // keeps_older: no older checkpoint is removed. Rank 0 decides.
  void save(engine::Model& model, Step& step, const StepInfo& info, const Losses& losses, bool keeps_older);

  // Waits for the save that is under way; throws what went wrong, on every rank.
  void finish();
  // The moments of the checkpoints that have become complete since the last call.
  std::vector<StepInfo> published();
  // What the copies of checkpoint.is_async take on this rank.
  int64_t bytes() const { return model_copies_.bytes() + optimizer_copies_.bytes(); }
  // The save that was under way has failed on this rank: on the others too, or soon.
  bool has_failed() const { return background_.has_failed(); }

 private:
  void write(const Saving& saving);
  void write_in(const std::filesystem::path& stage, const Saving& saving);
  void publish(const std::filesystem::path& stage, const Saving& saving);
  void give_up(const std::filesystem::path& stage);
  void sync_metrics() const;
  void write_beside(const Saving& saving, const std::filesystem::path& stage) const;

  const RunSpec& run_;
  Rendezvous& rendezvous_;
  const checkpoint::ShardedWriter model_, optimizer_;
  Copies model_copies_, optimizer_copies_;
  std::mutex published_mutex_;
  std::vector<StepInfo> published_;
  Background background_;  // last: it uses all the others
};

// checkpoint_dir/epoch_E_step_S.
std::filesystem::path directory_of(const RunSpec& run, const StepInfo& info);

// Where checkpoints in the making lie: in checkpoint_dir, or where checkpoint.staging_dir says.
std::filesystem::path stages_of(const CheckpointSection& section);

// Whether this step writes a model, as RunSpec::exports says.
bool saves_model(const RunSpec& run, const StepInfo& info);

}  // namespace heddle
