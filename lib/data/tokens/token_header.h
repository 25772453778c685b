// What the header of a token file says: where the tokens begin, how many they are, and their type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "lib/data/tokens/token_file.h"

namespace heddle {

inline constexpr int32_t kNanogptMagic = 20240520;
inline constexpr int32_t kAutomodelMagic = 278895051;
inline constexpr size_t kHeaderWords = 256;  // int32 each
// In word 4, which other readers skip: heddle wrote the file, and a token is a byte of text, or is not.
inline constexpr int32_t kBytesMark = 0x65747962;   // "byte"
inline constexpr int32_t kTokensMark = 0x6e656b74;  // "tken"

struct TokenHeader {
  TokenType type = TokenType::uint16;
  size_t offset = 0;
  int64_t tokens = 0;
  bool bytes = false;  // a token is a byte of text
};

size_t width_of(TokenType type);  // in bytes

// Throws Error{input} naming `file`.
TokenHeader read_token_header(const std::filesystem::path& file, std::span<const std::byte> bytes,
                              std::optional<TokenType> bare);

// Whether a file begins as a token file does, and as one that heddle is writing, or was.
bool is_token_file(const std::filesystem::path& file);
bool is_unfinished_token_file(const std::filesystem::path& file);

// The header of Megatron's NAME.idx for a NAME.bin of `bytes` bytes; lengths: takes the tokens of each
// sequence.
TokenHeader read_megatron_index(const std::filesystem::path& index, size_t bytes,
                                std::vector<int64_t>* lengths = nullptr);

}  // namespace heddle
