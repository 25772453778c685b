// Samples of unequal length in token files, and the rows that they are packed into.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lib/run/data/packing/packing.h"
#include "lib/run/data/token_file.h"

namespace heddle {

// A text file of whole numbers, one a line: the lengths of the samples of a token file, in tokens, in their
// order. Throws Error{input} with FILE:LINE for what is not a number of at least 2, and where they do not add
// up to the file's tokens.
std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens);

// A sample of n tokens has n - 1 inputs and as many labels, its tokens one further.
struct Sample {
  size_t file = 0;
  int64_t begin = 0, inputs = 0;  // its first token in the file; n - 1
};

struct SampleRows {
  std::vector<Sample> samples;  // file by file
  Packs packs;                  // rows of samples
  int64_t length = 0;           // tokens of a row
  std::string lengths_sum;      // a checksum of all lengths
  std::string packing = "off";  // in words, for checkpoints
  int64_t left_out = 0;         // samples longer than a pack
  int64_t longest = 0;          // inputs of the longest sample of all
  int64_t longest_kept = 0;     // of those in rows
};

// lengths: [file][sample]. rules.size 0: no packing, rows of `length` tokens with one sample each.
SampleRows rows_of_samples(std::span<const std::vector<int64_t>> lengths, const PackRules& rules,
                           int64_t length);

}  // namespace heddle
