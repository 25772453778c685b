// A memory-mapped token file with a checked header: nanoGPT, AutoModel, Megatron, or raw integers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "lib/data/mapped_file.h"
#include "lib/data/tokens/token_note.h"

namespace heddle {

enum class TokenType { uint8, int8, int16, uint16, int32, uint32, int64 };

struct TokenRange {  // smallest and largest token
  int64_t least = 0, most = 0;
};

// Returns the range of `count` integers of the type, with the widest SIMD registers. `from` is aligned for
// the type.
TokenRange range_of(TokenType type, const std::byte* from, int64_t count);
// Returns the range of all values of the type.
TokenRange range_of(TokenType type);

// Formats: nanoGPT (1024 bytes of header: magic 20240520, version 1, number of tokens; then uint16),
// AutoModel's wider form (magic 278895051, version 1, number of tokens, bytes per token 2 or 4), Megatron's
// indexed dataset (NAME.bin and NAME.idx, read as one stream), and raw integers of the type `bare`. Throws
// Error{input} for a wrong magic or version, a truncated file, and extra bytes.
class TokenFile {
 public:
  TokenFile(const std::filesystem::path& file, std::optional<TokenType> bare);

  int64_t size() const { return size_; }  // number of tokens
  // Whether tokens are bytes of text, written by `heddle data`.
  bool holds_bytes() const { return holds_bytes_; }
  const std::filesystem::path& path() const { return path_; }
  TokenType type() const { return type_; }
  size_t bytes() const { return file_.bytes().size(); }
  int64_t modified() const { return file_.modified(); }  // as MappedFile
  // Maximum bytes that range() and has() read: all of a smaller file; of a larger one, 1024 blocks spread
  // evenly from the first to the last token.
  static constexpr int64_t kMostChecked = int64_t{64} << 20;
  // Returns the range of the checked tokens, of which there is at least one. Reads with all threads.
  TokenRange range() const;
  // Returns a checksum of the stored tokens, independent of the file's name and header, with their type and
  // number. Covers all tokens up to 4 MiB, and 64 evenly spread blocks of a larger file.
  std::string digest() const;
  // Whether the checked tokens contain the token. Stops reading at the first match.
  bool has(int64_t token) const;
  // Tokenizer that made the file, from the note next to it; empty: unknown.
  const std::optional<TokenNote>& tokenizer() const { return tokenizer_; }
  // Reads the tokens [begin, begin + out.size()), which must be in the file.
  void read(int64_t begin, std::span<int64_t> out) const;
  // Returns the error for a token outside the vocabulary, with the file and the token's position.
  Error outside(int64_t place, int64_t token, int64_t vocabulary) const;

 private:
  struct Block {
    int64_t begin = 0, count = 0;  // in tokens
  };
  std::vector<Block> blocks_to_check() const;
  size_t bytes_in(const Block& block) const {
    return byte_offset(block.begin + block.count) - byte_offset(block.begin);
  }
  size_t byte_offset(int64_t token) const;  // offset in the file
  const std::byte* at(int64_t token) const;

  std::filesystem::path path_;
  MappedFile file_;
  TokenType type_ = TokenType::uint16;
  size_t offset_ = 0;  // byte offset of the first token
  int64_t size_ = 0;
  bool holds_bytes_ = false;
  std::optional<TokenNote> tokenizer_;
};

}  // namespace heddle
