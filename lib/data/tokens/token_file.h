// One file of tokens, mapped and its header checked: nanoGPT, AutoModel, Megatron, or bare integers.
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

struct TokenRange {  // from the smallest token to the largest
  int64_t least = 0, most = 0;
};

// The range of `count` integers of the type, in the widest registers of the processor. `from` is aligned for
// the type.
TokenRange range_of(TokenType type, const std::byte* from, int64_t count);
// The range of all values that the type has.
TokenRange range_of(TokenType type);

// Formats: nanoGPT (1024 bytes of header: magic 20240520, version 1, number of tokens; then uint16),
// AutoModel's wider form (magic 278895051, version 1, number of tokens, bytes per token 2 or 4), Megatron's
// indexed dataset (NAME.bin beside NAME.idx, read as one stream of its sequences), and bare integers of the
// type `bare`. Throws Error{input} on a wrong magic or version, a cut file, and bytes that are left over.
class TokenFile {
 public:
  TokenFile(const std::filesystem::path& file, std::optional<TokenType> bare);

  int64_t size() const { return size_; }  // in tokens
  // Whether `heddle data` made it: a token is a byte of text.
  bool holds_bytes() const { return holds_bytes_; }
  const std::filesystem::path& path() const { return path_; }
  TokenType type() const { return type_; }
  size_t bytes() const { return file_.bytes().size(); }
  int64_t modified() const { return file_.modified(); }  // as MappedFile
  // Bytes that range() and has() read at most: all of a smaller file; 1024 blocks, evenly spread from the
  // first token to the last, of a larger one.
  static constexpr int64_t kMostChecked = int64_t{64} << 20;
  // The range of the tokens that are checked, of which there is at least one. Reads on all threads.
  TokenRange range() const;
  // A checksum of the tokens as they are stored, whatever the file's name and header: of all of them up to 4
  // MiB, of a larger file of 64 blocks spread evenly over it, and the type and number of the tokens.
  std::string digest() const;
  // Whether the token is among those that are checked. Reads up to the first one.
  bool has(int64_t token) const;
  // What made it, by the file beside it; empty: not known.
  const std::optional<TokenNote>& tokenizer() const { return tokenizer_; }
  // Tokens [begin, begin + out.size()), which the file holds.
  void read(int64_t begin, std::span<int64_t> out) const;
  // The error of a token that is not in the vocabulary, with the file and the token's place.
  Error outside(int64_t place, int64_t token, int64_t vocabulary) const;

 private:
  struct Block {
    int64_t begin = 0, count = 0;  // in tokens
  };
  std::vector<Block> blocks_to_check() const;
  size_t bytes_in(const Block& block) const {
    return place_of(block.begin + block.count) - place_of(block.begin);
  }
  size_t place_of(int64_t token) const;  // in the file, in bytes
  const std::byte* at(int64_t token) const;

  std::filesystem::path path_;
  MappedFile file_;
  TokenType type_ = TokenType::uint16;
  size_t offset_ = 0;  // of the first token, in bytes
  int64_t size_ = 0;
  bool holds_bytes_ = false;
  std::optional<TokenNote> tokenizer_;
};

}  // namespace heddle
