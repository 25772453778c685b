// Tokenizer of a Hugging Face model: its tokenizer.json, read by Hugging Face's own library.
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

// Runs the Python package `tokenizers` in a separate process, so that ids equal those of the library.
class HEDDLE_API Tokenizer {
 public:
  // Throws Error{input} if DIRECTORY has no tokenizer.json or the library cannot read it, and if Python or
  // the package is missing; then the hint says what to install.
  explicit Tokenizer(const std::filesystem::path& directory);

  const std::filesystem::path& file() const { return file_; }  // path of tokenizer.json
  int64_t vocabulary() const { return vocabulary_; }           // largest id + 1

  std::optional<int64_t> id_of(const std::string& token);
  // Returns the ids of each text (UTF-8), with the tokenizer's special tokens around a text. Uses all cores.
  std::vector<std::vector<uint32_t>> encode(std::span<const std::string> texts);
  // encode() in two halves, so that the caller can work in between.
  void begin_encoding(std::span<const std::string> texts);
  std::vector<std::vector<uint32_t>> end_encoding();
  // Returns the ids of a user message rendered by a chat template, up to the start of the answer. An empty
  // template means the tokenizer's own. Throws Error{input} if it has none or refuses the message.
  std::vector<int64_t> chat(const std::string& message, const std::string& chat_template = "");
  // Returns the text of ids without special tokens.
  std::string decode(std::span<const int64_t> ids);
  std::string decode_all(std::span<const int64_t> ids);  // with special tokens
  // Returns the text that one more id adds to the previous ones: "" until its last character is complete.
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
