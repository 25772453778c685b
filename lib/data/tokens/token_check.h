// Checks of the data's tokens against the vocabulary before the first step.
#pragma once

#include <filesystem>
#include <span>

#include "lib/data/rows.h"
#include "lib/data/tokens/token_file.h"

namespace heddle {

// Asks each data set to verify itself, and reads all rows of those that do not know. What the sets have found
// is kept in the file `notes` (empty: nowhere), so that the next start does not look for it again. Throws
// Error{input} naming the first token that a row has and the vocabulary does not; Error{io} where the notes
// cannot be written.
void check_tokens(std::span<const Rows* const> datasets, int64_t vocabulary,
                  const std::filesystem::path& notes);

// The range of the file's checked tokens (TokenFile::range()): the one that the notes have for this size and
// time of change; else the file is read, and the range noted.
TokenRange noted_range(const TokenFile& file, DataNotes& notes);

bool in_vocabulary(TokenRange range, int64_t vocabulary);

inline constexpr const char* kTokenNotes = ".tokens.json";  // their name in checkpoint_dir
// Whether a file holds such notes.
bool is_token_notes(const std::filesystem::path& file);

}  // namespace heddle
