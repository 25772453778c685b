// Samples of a fixed length cut from one or several token files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/order.h"
#include "trainer/data/token_file.h"

namespace heddle {

// The files that match any of the patterns (as a shell reads them), sorted by name, each once.
std::vector<std::filesystem::path> matching_files(std::span<const std::string> patterns);

// Sample i of a file is its tokens [i*L, i*L + L], L + 1 of them: the first L are the inputs, the last L the
// labels. Files are in sequence; no sample spans two files.
class TokenDataset {
 public:
  // Throws Error{input} when no file holds one sample.
  TokenDataset(std::vector<TokenFile> files, int64_t sequence_length,
               std::optional<int64_t> document_end = {});

  int64_t size() const { return first_.back(); }  // in samples
  bool holds_bytes() const;                       // every file: a token is a byte of text
  int64_t sequence_length() const { return sequence_length_; }
  // The token that ends a document within a sample; empty: each sample is one document.
  std::optional<int64_t> document_end() const { return document_end_; }
  std::span<const TokenFile> files() const { return files_; }
  // Throws Error{input} naming the first token of `file`, one of files(), that a sample has and that is
  // outside [0, vocabulary).
  void refuse_outside(const TokenFile& file, int64_t vocabulary) const;
  // Writes the L + 1 tokens of a sample. Throws Error{input} on a token outside [0, vocabulary).
  void read(int64_t sample, int64_t vocabulary, std::span<int64_t> tokens) const;

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> first_;  // the first sample of each file, and the number of all
  int64_t sequence_length_;
  std::optional<int64_t> document_end_;
};

}  // namespace heddle
