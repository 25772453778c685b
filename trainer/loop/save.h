// Where a run lays its checkpoints and models: names of directories, the pointer LATEST, what stands beside.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "heddle/engine/engine.h"
#include "trainer/loop/job.h"

namespace heddle {

// The losses that a checkpoint is judged by.
struct Losses {
  double training = 0;                       // of its last step
  std::map<std::string, double> validation;  // by the name of the set; as they were last measured
};

// checkpoint_dir/epoch_E_step_S: model/ and optim/ as the ranks hold them, where the run stands, losses.json
// and the configuration; model/consolidated with config.json, safetensors and the notes on the tokenizer
// where saves_model() says so; then LATEST points to it. It appears when all of it is on the disk. A
// collective of all ranks; what fails on one throws on every rank.
void save_checkpoint(const Job& job, engine::Model& model, Step& step, const Moment& moment,
                     const Losses& losses);

// checkpoint_dir/epoch_E_step_S.
std::filesystem::path directory_of(const Job& job, const Moment& moment);

// Whether this moment writes a model, as checkpoint.save_consolidated says.
bool saves_model(const CheckpointSection& section, const Moment& moment);

// The model's directory under an HF directory or the checkpoint directory of a run: the first with a
// config.json of DIR, DIR/model/consolidated, DIR/LATEST/model/consolidated. Throws Error{input} naming where
// it looked.
std::filesystem::path find_model(const std::filesystem::path& directory);

// The note that a model's tokens are bytes of text.
inline constexpr const char* kTokenizerNote = "heddle_tokenizer.json";
bool has_byte_tokenizer(const std::filesystem::path& model);

}  // namespace heddle
