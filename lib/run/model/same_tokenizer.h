// Whether the tokens of the data are those of the model's tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/run/data/token_dataset.h"

namespace heddle {

// Throws Error{config} at `where` for a token file that was made with another tokenizer than the model's
// tokenizer.json, as the file beside it says. Nothing where either is not known.
void check_tokenizer(const TokenDataset& dataset, const checkpoint::HfOrigin& model,
                     const std::string& where);

// Exports of a model that learns bytes of text say so, for `heddle generate`; a model with a tokenizer gets a
// warning instead.
void note_bytes(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                std::vector<std::string>& warnings);

}  // namespace heddle
