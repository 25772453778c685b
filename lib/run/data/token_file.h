// One file of tokens, mapped and its header checked: nanoGPT, AutoModel, Megatron, or bare integers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/run/data/mapped_file.h"
#include "lib/run/data/tokenizer/token_note.h"

namespace heddle {

enum class TokenType { uint8, int8, int16, uint16, int32, uint32, int64 };

struct TokenRange {  // from the smallest token to the largest
  int64_t least = 0, most = 0;
};

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
  // Of all its tokens, at least one; read on all threads.
  TokenRange range() const;
  // A checksum of the tokens as they are stored, whatever the file's name and header: of all of them up to 4
  // MiB, of a larger file of 64 blocks spread evenly over it, and the type and number of the tokens.
  std::string digest() const;
  bool has(int64_t token) const;  // reads up to the first one
  // What made it, by the file beside it; empty: not known.
  const std::optional<TokenNote>& tokenizer() const { return tokenizer_; }
  // Tokens [begin, begin + out.size()), which the file holds.
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
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
