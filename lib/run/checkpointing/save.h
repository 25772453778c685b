// Saving of checkpoints: the copy of each rank's state after a step, and writing it to disk.
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

// Contents of a checkpoint that is being written, independent of the run that continues.
struct Saving {
  StepInfo info;
  std::filesystem::path directory;  // final directory
  Position position;
  Losses losses;
  bool consolidated = false;  // exports the model
  bool keeps_older = false;   // removes no older checkpoint, whatever max_recent_checkpoints is
  std::vector<checkpoint::Part> model, optimizer;  // parts that this rank writes
};

// Saves checkpoints of one run, on every rank.
class Saver {
 public:
  // Lets the ranks agree on who writes which part. With checkpoint.is_async, allocates the copies: as many
  // bytes as this rank writes. A collective.
  Saver(const RunSpec& run, Rendezvous& rendezvous, engine::Model& model, Step& step);

  // Saves checkpoint_dir/epoch_E_step_S: model/ and optim/ as the ranks hold them, the position, losses.json
  // and the configuration. If saves_model() is true, also model/consolidated with config.json, safetensors
  // and the tokenizer files. Then updates the pointers. The checkpoint appears only when it is complete on
  // disk. A collective of all ranks; an error on one rank is thrown on every rank. If only the export fails,
  // the checkpoint is published without it before the error is thrown.
  // Returns, with checkpoint.is_async, once this rank has its copy, and a thread does the rest; its errors
  // are thrown on every rank by the next save() or finish(). Throws Error{diverged} if a parameter is not
  // finite; then nothing is written. keeps_older: no older checkpoint is removed. The value on rank 0 is
  // used.
  void save(engine::Model& model, Step& step, const StepInfo& info, const Losses& losses, bool keeps_older);

  // Waits for the current save and throws its error, on every rank.
  void finish();
  // Returns the steps of the checkpoints that were published since the last call.
  std::vector<StepInfo> published();
  // Size of the copies for checkpoint.is_async on this rank.
  int64_t bytes() const { return model_copies_.bytes() + optimizer_copies_.bytes(); }
  // Whether the current save has failed on this rank; other ranks have failed too or will soon.
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
  Background background_;  // last: uses all other members
};

// checkpoint_dir/epoch_E_step_S.
std::filesystem::path directory_of(const RunSpec& run, const StepInfo& info);

// Returns the directory of unfinished checkpoints: checkpoint_dir, or checkpoint.staging_dir if set.
std::filesystem::path stages_of(const CheckpointSection& section);

// Whether the checkpoint of this step includes an export, according to RunSpec::exports.
bool saves_model(const RunSpec& run, const StepInfo& info);

}  // namespace heddle
