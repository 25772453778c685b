// Writes byte-level token files with nanoGPT's header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace heddle {

// Every byte of the texts, joined in order, is one token (0 to 255); "-" is standard input. Written beside
// the target and renamed, so that a failed write leaves the old file. Returns the number of tokens. Throws
// Error{input} when a text cannot be read or all are empty, Error{io} when the file cannot be written.
int64_t write_byte_tokens(std::span<const std::string> texts, const std::filesystem::path& out);

}  // namespace heddle
