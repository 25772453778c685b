// Writes a token file that appears under its name when it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "heddle/base/export.h"
#include "lib/data/outputs.h"

namespace heddle {

// Called before anything is read or written. Throws Error{usage} in these cases. OUT or OUT.part is an input,
// also through a link and with `force`. OUT exists without `force`, or is not a regular file. OUT.part exists
// and no TokenWriter left it. A tokenizer note will be written and OUT.tokens.json is another file. OUT has
// no directory. A Megatron index next to OUT would make readers take it for that format.
HEDDLE_API void check_target(const std::filesystem::path& out, std::span<const Input> inputs, bool force,
                             bool has_note = false);

// Writes NAME.part and renames it, so that a failed write keeps the old file. Tokens of 2 bytes get nanoGPT's
// header, tokens of 4 bytes AutoModel's. Throws Error{io}.
class HEDDLE_API TokenWriter {
 public:
  enum class Content { tokens, bytes };  // bytes: the header says that tokens are bytes of text
  TokenWriter(const std::filesystem::path& out, int width, Content content);
  ~TokenWriter();  // removes the partial file unless finish() was called
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Writes tokens below 2^(8 * width). Throws Error{input} if the header cannot count them.
  void write(std::span<const uint32_t> tokens);
  int64_t size() const { return count_; }  // number of tokens
  void finish();

 private:
  void write_header();

  std::filesystem::path out_, partial_;
  std::ofstream file_;
  int width_;
  Content content_;
  int64_t count_ = 0;
  bool finished_ = false;
};

}  // namespace heddle
