// Megatron-Core's index of samples (GPTDataset): documents in a mixed order, laid end to end and cut into
// rows.
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

// The documents of train, validation and test by "900,50,50" or "0.99, 0.01, 0.00": missing numbers are 0.
// Throws Error{config} at `where` for a text without a positive number.
std::vector<DocumentRange> split_documents(const std::string& split, int64_t documents,
                                           const std::string& where);

// Samples of one file's documents. Sample i begins at token `shuffle[i] * sequence` of `documents` laid end
// to end.
struct SampleIndex {
  std::vector<int64_t> documents;  // numbers of documents, each as often as epochs are
  std::vector<int64_t> shuffle;
};

// lengths: tokens of each document of the split, the first being document `first`. wanted: samples that are
// asked for; empty: those of one epoch. The number of samples is at least `wanted`, unless the documents have
// no token to spare for one.
SampleIndex index_samples(std::span<const int64_t> lengths, int64_t first, int64_t sequence,
                          std::optional<int64_t> wanted, uint32_t seed);

// Which of several sets the samples come from: the next is of the set that lags most behind its weight; a set
// without samples left is passed over. counts: samples of each set.
std::vector<int32_t> blend(std::span<const double> weights, std::span<const int64_t> counts, int64_t size);

}  // namespace heddle::megatron
