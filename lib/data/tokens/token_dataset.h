// Samples of one or several token files: cut one after the other, or of lengths of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "lib/data/tokens/token_file.h"

namespace heddle {

// The files that match patterns as a shell reads them: each once, also where it has two names, under the one
// met first; sorted by name.
struct MatchingFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> lacking;             // patterns that match no file
  std::vector<std::filesystem::path> repeated;  // names of a file that another pattern or name has given
};
MatchingFiles matching_files(std::span<const std::string> patterns);

// A text file of whole numbers, one a line: the lengths of the samples of a token file, in tokens, in their
// order. Throws Error{input} with FILE:LINE for what is not a number of at least 2, and where they do not add
// up to the file's tokens.
std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens);

// Samples of equal length L: sample i of a file is its tokens [i*L, i*L + L], L + 1 of them: the first L are
// the inputs, the last L the labels. Samples of their own lengths: n tokens, n - 1 inputs and as many labels;
// each is a document. Files are in sequence; no sample spans two files.
class TokenDataset : public IDataset {
 public:
  // Throws Error{input} when no file holds one sample.
  TokenDataset(std::vector<TokenFile> files, int64_t sequence_length,
               std::optional<int64_t> document_end = {});
  // lengths: [file][sample], in tokens. Rows of `row_length` tokens.
  TokenDataset(std::vector<TokenFile> files, const std::vector<std::vector<int64_t>>& lengths,
               int64_t row_length, std::optional<int64_t> document_end = {});

  void keep_first(int64_t samples);  // of those of equal length
  void expect(int64_t vocabulary);   // read() refuses other tokens by file and place
  void add_inputs(std::vector<DataInput> inputs);
  void set_uses_seed(bool uses_seed) { uses_seed_ = uses_seed; }

  int64_t size() const override;
  int64_t length(int64_t sample) const override;
  int64_t row_length() const override { return sequence_length_; }
  bool is_uneven() const override { return !samples_.empty(); }
  void read(int64_t sample, const SampleTarget& to) const override;
  // The number of tokens and a checksum of them, file by file.
  std::string digest() const override;
  bool has_documents() const override { return !samples_.empty() || document_end_; }
  bool uses_seed() const override { return uses_seed_; }
  std::map<std::string, std::string> settings() const override;
  DataTokenizer tokenizer() const override;
  // tokenizer_content() of the first file's tokenizer that is known; empty: none is.
  std::string tokenizer_content() const;
  std::vector<DataInput> inputs() const override { return inputs_; }
  bool verify(DataNotes& notes) const override;

  bool has_lengths() const { return !samples_.empty(); }
  std::optional<int64_t> document_end() const { return document_end_; }
  std::span<const TokenFile> files() const { return files_; }
  bool has_token(int64_t token) const;  // in any of the files

 private:
  struct Sample {
    size_t file = 0;
    int64_t begin = 0, inputs = 0;  // its first token in the file; labels are one further
  };
  Sample at(int64_t sample) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> first_;   // the first sample of each file, and their number; of equal lengths
  std::vector<Sample> samples_;  // of lengths of their own; else empty
  std::string lengths_sum_;      // a checksum of all lengths
  int64_t sequence_length_;
  std::optional<int64_t> document_end_;
  int64_t vocabulary_ = std::numeric_limits<int64_t>::max();
  std::vector<DataInput> inputs_;
  bool uses_seed_ = false;
};

}  // namespace heddle
