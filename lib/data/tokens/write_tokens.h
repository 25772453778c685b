// Token files of texts: of their bytes, or of a tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "heddle/base/export.h"
#include "lib/data/document_reader.h"

namespace heddle {

// Every byte of the texts, joined in order, is one token (0 to 255); "-" is standard input. Returns the
// number of tokens. Throws Error{input} when a text cannot be read or all are empty, Error{io} when the file
// cannot be written.
HEDDLE_API int64_t write_byte_tokens(std::span<const std::string> texts, const std::filesystem::path& out);

struct Tokenization {
  std::filesystem::path tokenizer;  // the directory of tokenizer.json
  std::string end_token;            // as the vocabulary spells it; empty: the model's own
  DocumentForm form;
};

struct Tokenized {
  int64_t bytes = 0, documents = 0, tokens = 0;  // so far
  int width = 2;                                 // bytes a token
  int64_t end = 0;                               // the id after each document
};

// The ids of each document, and the end token after it where the tokenizer has not put it there itself.
// Tokens have 2 bytes where the vocabulary fits, else 4. Memory: a few MiB of text, or one document. Throws
// besides what DocumentReader and Tokenizer throw.
HEDDLE_API Tokenized write_text_tokens(std::span<const std::string> texts, const std::filesystem::path& out,
                                       const Tokenization& how,
                                       const std::function<void(const Tokenized&)>& progress = {});

}  // namespace heddle
