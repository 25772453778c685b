// Tokenizes texts into token files, by bytes or with a tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "heddle/base/export.h"
#include "lib/data/document_reader.h"

namespace heddle {

// Writes every byte of the concatenated texts as a token (0 to 255); "-" is standard input. Returns the
// number of tokens. Throws Error{input} if a text cannot be read or all are empty, Error{io} if the file
// cannot be written.
HEDDLE_API int64_t write_byte_tokens(std::span<const std::string> texts, const std::filesystem::path& out);

struct Tokenization {
  std::filesystem::path tokenizer;  // directory of tokenizer.json
  std::string end_token;            // as in the vocabulary; empty: the model's own
  DocumentForm form;
};

struct Tokenized {
  int64_t bytes = 0, documents = 0, tokens = 0;  // so far
  int width = 2;                                 // bytes per token
  int64_t end = 0;                               // id after each document
};

// Writes the ids of each document, and the end token after it unless the tokenizer adds it. Tokens have 2
// bytes if the vocabulary fits, else 4. Needs memory for a few MiB of text, or for one document. Also throws
// the errors of DocumentReader and Tokenizer.
HEDDLE_API Tokenized write_text_tokens(std::span<const std::string> texts, const std::filesystem::path& out,
                                       const Tokenization& how,
                                       const std::function<void(const Tokenized&)>& progress = {});

}  // namespace heddle
