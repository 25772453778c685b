// The tokenizer of a Hugging Face model: its tokenizer.json, read by Hugging Face's own library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "lib/data/tokenizer/python_process.h"

namespace heddle {

// Runs the Python package `tokenizers` in a process of its own, so that ids are those of the library itself.
class HEDDLE_API Tokenizer {
 public:
  // Throws Error{input} where DIRECTORY has no tokenizer.json, the library cannot read it, or Python or the
  // package are missing: then the hint says what to install.
  explicit Tokenizer(const std::filesystem::path& directory);

  const std::filesystem::path& file() const { return file_; }  // tokenizer.json
  int64_t vocabulary() const { return vocabulary_; }           // the largest id + 1

  std::optional<int64_t> id_of(const std::string& token);
  // The ids of each text (UTF-8), with the special tokens that the tokenizer puts around a text. All cores.
  std::vector<std::vector<uint32_t>> encode(std::span<const std::string> texts);
  // The same in two halves, so that the caller can work in between.
  void begin_encoding(std::span<const std::string> texts);
  std::vector<std::vector<uint32_t>> end_encoding();
  // The ids of a user's message by a chat template, up to where the answer begins; empty: the tokenizer's
  // own. Throws Error{input} where it has none, or refuses the message.
  std::vector<int64_t> chat(const std::string& message, const std::string& chat_template = "");
  // The text of ids, without special tokens.
  std::string decode(std::span<const int64_t> ids);
  std::string decode_all(std::span<const int64_t> ids);  // special tokens too
  // What one more id adds to the text of those before it: "" until its last character is complete.
  std::string step(int64_t id);

 private:
  Message answer();
  std::string decoded(std::span<const int64_t> ids, bool skips_special);

  std::filesystem::path file_;
  PythonProcess process_;
  int64_t vocabulary_ = 0;
  std::string library_;  // version
};

}  // namespace heddle
