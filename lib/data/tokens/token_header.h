// Header of a token file: position, number and type of the tokens.
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
// Marks in word 4, which other readers skip: heddle wrote the file, and tokens are bytes of text, or not.
inline constexpr int32_t kBytesMark = 0x65747962;   // "byte"
inline constexpr int32_t kTokensMark = 0x6e656b74;  // "tken"

struct TokenHeader {
  TokenType type = TokenType::uint16;
  size_t offset = 0;
  int64_t tokens = 0;
  bool bytes = false;  // tokens are bytes of text
};

size_t width_of(TokenType type);  // in bytes

// Throws Error{input} that names `file`.
TokenHeader read_token_header(const std::filesystem::path& file, std::span<const std::byte> bytes,
                              std::optional<TokenType> bare);

// Whether a file begins like a token file, and like one that heddle is writing or did not finish.
bool is_token_file(const std::filesystem::path& file);
bool is_unfinished_token_file(const std::filesystem::path& file);

// Reads the header of Megatron's NAME.idx for a NAME.bin of `bytes` bytes. lengths: receives the tokens per
// sequence.
TokenHeader read_megatron_index(const std::filesystem::path& index, size_t bytes,
                                std::vector<int64_t>* lengths = nullptr);

}  // namespace heddle
