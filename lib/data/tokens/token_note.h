// The file beside a token file that says which tokenizer made it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

struct TokenNote {
  std::string name;        // of the tokenizer's directory
  std::string digest;      // a checksum of the bytes of tokenizer.json
  std::string content;     // as tokenizer_content()
  int64_t vocabulary = 0;  // the largest id + 1
  int64_t end_token = 0;   // after each document
  std::string tokens;      // TokenFile::digest() of the token file
  bool operator==(const TokenNote&) const = default;
};

// FILE.tokens.json.
std::filesystem::path note_beside(const std::filesystem::path& file);

// A checksum of what a tokenizer.json says, whatever its spaces, the order of its keys, and the padding and
// truncation that libraries set in it.
std::string tokenizer_content(std::string_view tokenizer_json);

// Writes it beside FILE. Throws Error{io}.
void write_note(const std::filesystem::path& file, const TokenNote& note);

// Takes away what write_note() has left beside FILE, and nothing that somebody else wrote.
void remove_note(const std::filesystem::path& file);

// Whether write_note() has left this file.
bool is_note(const std::filesystem::path& note);

// Empty where there is none, it is not heddle's, or it was written for other tokens than `tokens`.
std::optional<TokenNote> read_note(const std::filesystem::path& file, const std::string& tokens);

}  // namespace heddle
