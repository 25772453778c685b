// The model of a checkpoint as transformers reads it, and finding one again.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/mesh/rendezvous.h"
#include "trainer/loop/job.h"

namespace heddle {

// MODEL/consolidated from the sharded files in MODEL: config.json, safetensors, and the notes on the
// tokenizer of the model that training began from. A collective; what fails on one rank throws on every rank.
// `key` is used once in a run.
void write_consolidated(const Job& job, const std::filesystem::path& model, Rendezvous& meeting,
                        const std::string& key);

// The model's directory under an HF directory or the checkpoint directory of a run: the first with a
// config.json of DIR, DIR/model/consolidated, DIR/LATEST/model/consolidated. Throws Error{input} naming where
// it looked.
std::filesystem::path find_model(const std::filesystem::path& directory);

// The note that a model's tokens are bytes of text.
inline constexpr const char* kTokenizerNote = "heddle_tokenizer.json";
bool has_byte_tokenizer(const std::filesystem::path& model);

}  // namespace heddle
