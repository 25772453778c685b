// Checks the data's tokens against the vocabulary before the first step.
#pragma once

#include <filesystem>
#include <span>

#include "lib/data/rows.h"
#include "lib/data/tokens/token_file.h"

namespace heddle {

// Lets each data set verify itself, and reads all rows of those that cannot. Results are cached in the file
// `notes` (empty: no cache) for the next start. Throws Error{input} that names the first token outside the
// vocabulary, and Error{io} if the notes cannot be written.
void check_tokens(std::span<const Rows* const> datasets, int64_t vocabulary,
                  const std::filesystem::path& notes);

// Returns the range of the file's checked tokens (TokenFile::range()): from the notes for this size and
// modification time; else reads the file and notes the range.
TokenRange noted_range(const TokenFile& file, DataNotes& notes);

bool in_vocabulary(TokenRange range, int64_t vocabulary);

inline constexpr const char* kTokenNotes = ".tokens.json";  // file name in checkpoint_dir
// Whether a file contains such notes.
bool is_token_notes(const std::filesystem::path& file);

}  // namespace heddle
