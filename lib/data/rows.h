// Rows for training: each sample of a data set in its own row, or several packed into one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "lib/data/packing.h"

namespace heddle {

// Memory of a row of L tokens with its labels.
struct RowTarget {
  std::span<int64_t> tokens, labels;  // L each
  std::vector<int32_t>& documents;    // receives the starts of the row's documents, relative to `first`
  int64_t first = 0;                  // position of the row's first token
};

// Result of packing a data set's samples.
struct Packing {
  Packs packs;
  std::string text;          // "thd packs of 64 tokens", for checkpoints
  int64_t left_out = 0;      // number of samples longer than a pack
  int64_t longest = 0;       // tokens of the longest sample
  int64_t longest_kept = 0;  // tokens of the longest sample in a pack
};

// Each sample of a pack is a document. The rest of a row is one more document, of tokens 0 without labels.
class Rows {
 public:
  // rules.size 0: each sample is a row.
  // multiple: ragged rows are padded to a multiple of this number.
  // most: maximum number of samples to use, before shuffling and packing; empty: all.
  explicit Rows(std::shared_ptr<const IDataset> samples, const PackRules& rules = {}, int64_t multiple = 1,
                std::optional<int64_t> most = std::nullopt);

  const IDataset& samples() const { return *samples_; }
  int64_t used_samples() const { return used_samples_; }     // number of samples used, from the first one
  const Packing* packing() const { return packing_.get(); }  // null: each sample is a row
  int64_t size() const { return size_; }                     // number of rows
  // Tokens per row; for ragged rows, of the longest.
  int64_t length() const { return length_; }
  // rows have the length of the longest row of their microbatch
  bool is_ragged() const { return is_ragged_; }
  // Returns the row length in a microbatch whose longest row has this many tokens without padding.
  int64_t length_for(int64_t text) const;
  int64_t text_tokens(int64_t row) const;                   // tokens of a row without padding
  double mean_text() const;                                 // mean over all rows
  int64_t longest() const { return longest_; }              // tokens of the longest sample in a row
  bool is_uneven() const { return samples_->is_uneven(); }  // samples may differ in length
  bool has_documents() const { return packing_ != nullptr || samples_->has_documents(); }
  // Returns the number of tokens of the row without padding. Throws Error{input} for a token outside [0,
  // vocabulary).
  int64_t read(int64_t row, int64_t vocabulary, const RowTarget& to) const;

 private:
  int64_t read_sample(int64_t sample, int64_t vocabulary, const RowTarget& to, int64_t column) const;

  std::shared_ptr<const IDataset> samples_;
  std::shared_ptr<const Packing> packing_;
  int64_t used_samples_ = 0, size_ = 0, length_ = 0, longest_ = 0, multiple_ = 1;
  bool is_ragged_ = false;
};

}  // namespace heddle
