// Rows of training from one or several token files: samples of a fixed length, or packs of samples of their
// own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/run/data/order.h"
#include "lib/run/data/packing/sample_rows.h"
#include "lib/run/data/token_file.h"

namespace heddle {

// The files that match patterns as a shell reads them: each once, also where it has two names, under the one
// met first; sorted by name.
struct MatchingFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> lacking;             // patterns that match no file
  std::vector<std::filesystem::path> repeated;  // names of a file that another pattern or name has given
};
MatchingFiles matching_files(std::span<const std::string> patterns);

// A row of L tokens with its labels.
struct RowTarget {
  std::span<int64_t> tokens, labels;  // L each
  std::vector<int32_t>& documents;    // where the row's documents begin is added, counted from `first`
  int64_t first = 0;                  // the place of the row's first token
};

// Row i of a file is its tokens [i*L, i*L + L], L + 1 of them: the first L are the inputs, the last L the
// labels. Files are in sequence; no row spans two files. Or rows are packs of samples (SampleRows), each a
// document, and what is left of a row is one more, of tokens 0 without labels.
class TokenDataset {
 public:
  // Throws Error{input} when no file holds one row.
  TokenDataset(std::vector<TokenFile> files, int64_t sequence_length,
               std::optional<int64_t> document_end = {});
  TokenDataset(std::vector<TokenFile> files, SampleRows rows, std::optional<int64_t> document_end = {});

  // Keeps the first so many rows of those that are cut from one row of tokens. Rows of samples are limited
  // where they are made (rows_of_samples).
  void keep_first(int64_t rows);
  int64_t size() const { return samples_ ? samples_->packs.size() : first_.back(); }  // in rows
  int64_t label_tokens() const;                                                       // of all rows
  bool holds_bytes() const;  // every file: a token is a byte of text
  int64_t sequence_length() const { return sequence_length_; }
  // The rows' samples of unequal length; null: rows are cut from one row of tokens.
  const SampleRows* samples() const { return samples_ ? &*samples_ : nullptr; }
  bool has_documents() const { return samples_ || document_end_; }  // rows may have more than one
  // The token that ends a document within a sample; empty: each sample is one document.
  std::optional<int64_t> document_end() const { return document_end_; }
  std::span<const TokenFile> files() const { return files_; }
  // The number of tokens and a checksum of them, file by file; not of their names.
  std::string digest() const;
  // What made the first file of which that is known; null: none is.
  const TokenNote* tokenizer() const;
  // Whether any of the files has this token.
  bool has_token(int64_t token) const;
  // Throws Error{input} naming the first token of `file`, one of files(), that a row has and that is
  // outside [0, vocabulary).
  void refuse_outside(const TokenFile& file, int64_t vocabulary) const;
  // Returns how many tokens of the row are text; the others fill it. Throws Error{input} on a token outside
  // [0, vocabulary).
  int64_t read(int64_t row, int64_t vocabulary, const RowTarget& to) const;

 private:
  // A sample at `column` of the row.
  void read_sample(const Sample& sample, int64_t vocabulary, const RowTarget& to, int64_t column) const;

  std::vector<TokenFile> files_;
  std::optional<SampleRows> samples_;
  std::vector<int64_t> first_;  // the first row of each file, and the number of all; without samples_
  int64_t sequence_length_;
  std::optional<int64_t> document_end_;
};

}  // namespace heddle
