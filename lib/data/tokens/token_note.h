// Note next to a token file that names the tokenizer that made it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

struct TokenNote {
  std::string name;        // name of the tokenizer's directory
  std::string digest;      // checksum of the bytes of tokenizer.json
  std::string content;     // from tokenizer_content()
  int64_t vocabulary = 0;  // largest id + 1
  int64_t end_token = 0;   // token after each document
  std::string tokens;      // TokenFile::digest() of the token file
  bool operator==(const TokenNote&) const = default;
};

// Returns FILE.tokens.json.
std::filesystem::path note_beside(const std::filesystem::path& file);

// Returns a checksum of the contents of a tokenizer.json, independent of whitespace, key order, and the
// padding and truncation that libraries set in it.
std::string tokenizer_content(std::string_view tokenizer_json);

// Writes the note next to FILE. Throws Error{io}.
void write_note(const std::filesystem::path& file, const TokenNote& note);

// Removes the note of write_note() next to FILE, but no file of another program.
void remove_note(const std::filesystem::path& file);

// Whether write_note() wrote this file.
bool is_note(const std::filesystem::path& note);

// Returns the note; empty if there is none, if another program wrote it, or if it is of other tokens than
// `tokens`.
std::optional<TokenNote> read_note(const std::filesystem::path& file, const std::string& tokens);

}  // namespace heddle
