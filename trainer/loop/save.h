// Saving: the copy of what the ranks hold at one moment, and its way to the disk.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "trainer/loop/job.h"

namespace heddle {

// The losses that a checkpoint is judged by.
struct Losses {
  double training = 0;                       // of its last step
  std::map<std::string, double> validation;  // by the name of the set; as they were last measured
};

// A checkpoint that is being written: all that it holds, apart from the run that goes on.
struct Saving {
  std::filesystem::path directory;  // that it will have
  Position position;
  Losses losses;
  bool consolidated = false;                       // with the model for transformers
  std::vector<checkpoint::Part> model, optimizer;  // this rank's
};

// Saves checkpoints of one run, on every rank.
class Saver {
 public:
  Saver(const Job& job, Rendezvous& meeting) : job_(job), meeting_(meeting) {}

  // checkpoint_dir/epoch_E_step_S: model/ and optim/ as the ranks hold them, where the run stands,
  // losses.json and the configuration; model/consolidated with config.json, safetensors and the notes on the
  // tokenizer where saves_model() says so; then the pointers. It appears when all of it is on the disk. A
  // collective of all ranks; what fails on one throws on every rank.
  void save(engine::Model& model, Step& step, const Moment& moment, const Losses& losses);

 private:
  void write(const Saving& saving);

  const Job& job_;
  Rendezvous& meeting_;
};

// checkpoint_dir/epoch_E_step_S.
std::filesystem::path directory_of(const Job& job, const Moment& moment);

// Whether this moment writes a model, as checkpoint.save_consolidated says.
bool saves_model(const CheckpointSection& section, const Moment& moment);

}  // namespace heddle
