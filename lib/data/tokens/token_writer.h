// A token file that appears under its name when it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "heddle/base/export.h"
#include "lib/data/outputs.h"

namespace heddle {

// Before anything is read or written. Throws Error{usage} when OUT or OUT.part is one of the inputs, also
// through a link (`force` does not change that), when OUT is there and `force` is not given or is no regular
// file, when OUT.part is there and no TokenWriter has left it, when a note of the tokenizer will be written
// and OUT.tokens.json is none, when OUT has no directory, and when a Megatron index beside it would make
// readers take it for that format.
HEDDLE_API void check_target(const std::filesystem::path& out, std::span<const Input> inputs, bool force,
                             bool has_note = false);

// Written beside the target (NAME.part) and renamed, so that a failed write leaves the old file. Tokens of 2
// bytes have nanoGPT's header, tokens of 4 AutoModel's. Throws Error{io}.
class HEDDLE_API TokenWriter {
 public:
  enum class Content { tokens, bytes };  // bytes: the header says that a token is a byte of text
  TokenWriter(const std::filesystem::path& out, int width, Content content);
  ~TokenWriter();  // without finish(): the partial file is removed
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Each below 2^(8 * width). Throws Error{input} where the header cannot count them.
  void write(std::span<const uint32_t> tokens);
  int64_t size() const { return count_; }  // in tokens
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
