// The note of a model that learns bytes of text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/checkpoint/huggingface/hf_origin.h"

namespace heddle {

// Exports of a model that learns bytes of text say so, for `heddle generate`; a model with a tokenizer gets a
// warning instead.
void note_bytes(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                std::vector<std::string>& warnings);

}  // namespace heddle
