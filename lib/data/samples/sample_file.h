// File of prepared samples, NAME.samples: tokens of all samples, and the runs of trained tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/data/mapped_file.h"

namespace heddle {

// Header, little endian; docs/reference/data.md has the table. Sections start at multiples of 64 bytes,
// padded with zeros.
struct SampleHeader {
  struct Section {
    uint64_t offset = 0, bytes = 0;
  };
  char magic[8] = {};
  uint32_t version = 0, header_bytes = 0;
  uint64_t samples = 0, tokens = 0, runs = 0;
  uint32_t token_bytes = 0, flags = 0;
  int64_t vocabulary = 0, bos = -1, eos = -1, pad = -1;  // -1: none
  Section token_section, sample_index, run_index, run_section, description;
  uint64_t token_checksum = 0, index_checksum = 0, description_checksum = 0, header_checksum = 0;
};
static_assert(sizeof(SampleHeader) == 192);

// A run of trained tokens, as positions in its sample.
struct TokenRun {
  uint32_t begin = 0, end = 0;
};

// A memory-mapped file. A sample is the row before shifting: its tokens, and runs of the tokens that are
// labels.
class SampleFile {
 public:
  static constexpr uint32_t kLastIsInput = 1;      // the last token of a sample is also an input
  static constexpr uint32_t kRowsDropped = 2;      // rows were discarded or replaced
  static constexpr uint32_t kLabelsAreInputs = 4;  // label j is token j

  // Checks sizes, indices, runs and all checksums but that of the tokens. Throws Error{input} for a file that
  // is truncated, changed, unfinished or of another version.
  explicit SampleFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  int64_t modified() const { return mapped_.modified(); }
  const SampleHeader& header() const { return header_; }
  bool has(uint32_t flag) const { return (header_.flags & flag) != 0; }
  std::string description() const;  // JSON
  int64_t size() const { return static_cast<int64_t>(header_.samples); }
  int64_t tokens_of(int64_t sample) const;  // before shifting
  std::span<const TokenRun> runs_of(int64_t sample) const;
  // Reads tokens of a sample from `first` on, as many as `tokens` holds.
  void read(int64_t sample, std::span<int64_t> tokens, int64_t first = 0) const;
  int64_t largest_token() const;  // reads all tokens; -1: there are none
  void verify_tokens() const;     // reads all tokens; throws Error{input} if the checksum differs

 private:
  std::filesystem::path path_;
  MappedFile mapped_;
  SampleHeader header_;
  std::span<const uint64_t> starts_, run_starts_;
  std::span<const TokenRun> runs_;
};

// Completes a file whose four checksums are 0, as the preparation writes it. Throws Error{internal} for
// another file, and Error{io}.
void seal_samples(const std::filesystem::path& file);

// Whether a file begins like a file of samples.
bool is_sample_file(const std::filesystem::path& file);

}  // namespace heddle
