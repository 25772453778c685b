// The tokens that end a text, as the files of a Hugging Face model name them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

class Tokenizer;

// The ids after which generation stops: eos_token_id of generation_config.json, else of config.json, else the
// eos_token of the tokenizer's configuration, where there is a tokenizer. Empty: none is named. Throws
// Error{input} for files that are no JSON.
HEDDLE_API std::vector<int64_t> stop_tokens(const std::filesystem::path& model, Tokenizer* tokenizer);

// The bytes of a model's files, by name.
using NoteFiles = std::map<std::string, std::string>;

// Reads the end tokens from files in memory, with the tokenizer in tokenizer.json.
HEDDLE_API std::vector<int64_t> stop_tokens(const NoteFiles& files);

// Writes into config.json, and generation_config.json if it exists, the ids after which heddle generate
// stops, so that transformers stops there too. `own`: the files before the tokenizer was replaced by that of
// the data. `trained`: the end token of the data; -1: not known. The ids that the files name stay, but those
// that are another token in a new vocabulary. `trained`, or else the tokenizer's eos_token, is added if the
// files name no id, if the vocabulary is another, or if the data end with another token than the model's
// tokenizer names. Throws Error{input} for files that are no JSON.
HEDDLE_API void note_end_tokens(NoteFiles& files, const NoteFiles& own, int64_t trained);

// The id between documents: of `named` where it is not empty; else of eos_token in tokenizer_config.json or
// special_tokens_map.json; else the first eos_token_id of generation_config.json or config.json. Throws
// Error{input} where none is named, and where the vocabulary lacks it.
HEDDLE_API int64_t separator(const std::filesystem::path& model, const std::string& named,
                             Tokenizer& tokenizer);

}  // namespace heddle
