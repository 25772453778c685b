// End tokens of texts, as given by the files of a Hugging Face model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

class Tokenizer;

// Returns the ids at which generation stops: eos_token_id of generation_config.json, else of config.json,
// else the eos_token of the tokenizer's configuration, if there is a tokenizer. Empty: none. Throws
// Error{input} for files that are not JSON.
HEDDLE_API std::vector<int64_t> stop_tokens(const std::filesystem::path& model, Tokenizer* tokenizer);

// Contents of a model's files, by name.
using NoteFiles = std::map<std::string, std::string>;

// Reads the end tokens from files in memory, with the tokenizer in tokenizer.json.
HEDDLE_API std::vector<int64_t> stop_tokens(const NoteFiles& files);

// Writes the stop ids of heddle generate into config.json, and into generation_config.json if it exists, so
// that transformers stops there too. `own`: the files before the data's tokenizer replaced them. `trained`:
// end token of the data; -1: unknown. Keeps the ids in the files, except those that a new vocabulary gives to
// another token. Adds `trained`, or else the tokenizer's eos_token, if the files name no id, if the
// vocabulary changed, or if the data ends with another token than the model's tokenizer says. Throws
// Error{input} for files that are not JSON.
HEDDLE_API void note_end_tokens(NoteFiles& files, const NoteFiles& own, int64_t trained);

// Returns the id between documents: of `named` if it is not empty; else of eos_token in tokenizer_config.json
// or special_tokens_map.json; else the first eos_token_id of generation_config.json or config.json. Throws
// Error{input} if none is set or the vocabulary lacks it.
HEDDLE_API int64_t separator(const std::filesystem::path& model, const std::string& named,
                             Tokenizer& tokenizer);

}  // namespace heddle
