// Megatron-Core's sample index (GPTDataset): shuffled documents, concatenated and cut into rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle::megatron {

// Documents [begin, end) of a file.
struct DocumentRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
};

// Returns the document ranges of train, validation and test for "900,50,50" or "0.99, 0.01, 0.00"; missing
// numbers are 0. Throws Error{config} at `where` for a text without a positive number.
std::vector<DocumentRange> split_documents(const std::string& split, int64_t documents,
                                           const std::string& where);

// Samples of one file's documents. Sample i starts at token `shuffle[i] * sequence` of the concatenated
// `documents`.
struct SampleIndex {
  std::vector<int64_t> documents;  // document numbers, each once per epoch
  std::vector<int64_t> shuffle;
};

// lengths: tokens of each document of the split, the first being document `first`. wanted: requested number
// of samples; empty: one epoch. Returns at least `wanted` samples unless the documents have too few tokens
// for a single sample.
SampleIndex index_samples(std::span<const int64_t> lengths, int64_t first, int64_t sequence,
                          std::optional<int64_t> wanted, uint32_t seed);

// Returns the data set of each sample: the next sample comes from the set that lags most behind its weight,
// skipping sets without remaining samples. counts: samples per set.
std::vector<int32_t> blend(std::span<const double> weights, std::span<const int64_t> counts, int64_t size);

}  // namespace heddle::megatron
