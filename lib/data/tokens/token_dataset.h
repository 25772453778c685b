// Samples of one or several token files, cut at equal lengths or with given lengths.
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

// Files that match shell patterns, sorted by name. A file with several names is listed once, under the first
// one.
struct MatchingFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> lacking;             // patterns that match no file
  std::vector<std::filesystem::path> repeated;  // repeated names of a file
};
MatchingFiles matching_files(std::span<const std::string> patterns);

// Reads a text file with one integer per line: the lengths in tokens of the samples of a token file, in
// order. Throws Error{input} with FILE:LINE for a line that is not an integer of at least 2, and if the
// lengths do not add up to the file's tokens.
std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens);

// Samples of equal length L: sample i of a file has the L + 1 tokens from i*L on; the first L are the inputs,
// the last L the labels. Samples with given lengths: n tokens give n - 1 inputs and labels; each sample is a
// document. Files are concatenated, and no sample spans two files.
class TokenDataset : public IDataset {
 public:
  // Throws Error{input} if no file has a whole sample.
  TokenDataset(std::vector<TokenFile> files, int64_t sequence_length,
               std::optional<int64_t> document_end = {});
  // lengths: [file][sample], in tokens. Rows have `row_length` tokens.
  TokenDataset(std::vector<TokenFile> files, const std::vector<std::vector<int64_t>>& lengths,
               int64_t row_length, std::optional<int64_t> document_end = {});

  void keep_first(int64_t samples);  // for samples of equal length
  void expect(int64_t vocabulary);   // read() throws for tokens outside, with file and position
  void add_inputs(std::vector<DataInput> inputs);
  void set_uses_seed(bool uses_seed) { uses_seed_ = uses_seed; }

  int64_t size() const override;
  int64_t length(int64_t sample) const override;
  int64_t row_length() const override { return sequence_length_; }
  bool is_uneven() const override { return !samples_.empty(); }
  void read(int64_t sample, const SampleTarget& to) const override;
  // Returns the number of tokens and their checksum per file.
  std::string digest() const override;
  bool has_documents() const override { return !samples_.empty() || document_end_; }
  bool uses_seed() const override { return uses_seed_; }
  std::map<std::string, std::string> settings() const override;
  DataTokenizer tokenizer() const override;
  // Returns tokenizer_content() of the first file with a known tokenizer; empty: none.
  std::string tokenizer_content() const;
  std::vector<DataInput> inputs() const override { return inputs_; }
  bool verify(DataNotes& notes) const override;

  bool has_lengths() const { return !samples_.empty(); }
  std::optional<int64_t> document_end() const { return document_end_; }
  std::span<const TokenFile> files() const { return files_; }
  bool has_token(int64_t token) const;  // in any file

 private:
  struct Sample {
    size_t file = 0;
    int64_t begin = 0, inputs = 0;  // position of its first token in the file; labels are shifted by one
  };
  Sample at(int64_t sample) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> first_;   // for equal lengths: first sample of each file, and the total number
  std::vector<Sample> samples_;  // for given lengths; else empty
  std::string lengths_sum_;      // checksum of all lengths
  int64_t sequence_length_;
  std::optional<int64_t> document_end_;
  int64_t vocabulary_ = std::numeric_limits<int64_t>::max();
  std::vector<DataInput> inputs_;
  bool uses_seed_ = false;
};

}  // namespace heddle
