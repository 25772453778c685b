// The tokens that end a text, as the files of a Hugging Face model name them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

class Tokenizer;

// The ids after which generation stops: eos_token_id of generation_config.json, else of config.json, else the
// eos_token of the tokenizer's configuration, where there is a tokenizer. Empty: none is named. Throws
// Error{input} for files that are no JSON.
HEDDLE_API std::vector<int64_t> stop_tokens(const std::filesystem::path& model, Tokenizer* tokenizer);

// The id between documents: of `named` where it is not empty; else of eos_token in tokenizer_config.json or
// special_tokens_map.json; else the first eos_token_id of generation_config.json or config.json. Throws
// Error{input} where none is named, and where the vocabulary lacks it.
HEDDLE_API int64_t separator(const std::filesystem::path& model, const std::string& named,
                             Tokenizer& tokenizer);

}  // namespace heddle
