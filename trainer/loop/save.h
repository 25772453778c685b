// Where a run lays its models: names of directories, the pointer LATEST, what stands beside the weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "heddle/engine/engine.h"
#include "trainer/loop/job.h"

namespace heddle {

// checkpoint_dir/epoch_E_step_S/model/consolidated: config.json, safetensors, the notes on the tokenizer; the
// configuration beside model/; then LATEST points to epoch_E_step_S. A collective of all ranks; rank 0
// writes. Throws Error{io} on every rank when rank 0 cannot write. Returns the directory of the model.
std::filesystem::path save_model(const Job& job, engine::Model& model, const Moment& moment);

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
