// Whether every token of the data is one of the vocabulary, before the first step.
#pragma once

#include <filesystem>
#include <span>

#include "lib/run/data/token_dataset.h"

namespace heddle {

// Reads the token files on all threads, unless every value of their type is in the vocabulary. What was found
// is kept in the file `notes` (empty: nowhere) by path, size and time of change, so that the next start does
// not read them again. Throws Error{input} naming the first token that a row has and the vocabulary does
// not; Error{io} where the notes cannot be written.
void check_tokens(std::span<const TokenDataset* const> datasets, int64_t vocabulary,
                  const std::filesystem::path& notes);

inline constexpr const char* kTokenNotes = ".tokens.json";  // their name in checkpoint_dir
// Whether a file holds such notes.
bool is_token_notes(const std::filesystem::path& file);

}  // namespace heddle
