// Rows of training: the samples of a data set, each in a row of its own or several packed into one.
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

// A row of L tokens with its labels.
struct RowTarget {
  std::span<int64_t> tokens, labels;  // L each
  std::vector<int32_t>& documents;    // where the row's documents begin is added, counted from `first`
  int64_t first = 0;                  // the place of the row's first token
};

// What packing has made of a data set's samples.
struct Packing {
  Packs packs;
  std::string text;          // "thd packs of 64 tokens", for checkpoints
  int64_t left_out = 0;      // samples longer than a pack
  int64_t longest = 0;       // tokens of the longest sample of all
  int64_t longest_kept = 0;  // of those in packs
};

// Each sample of a pack is a document, and what is left of a row is one more, of tokens 0 without labels.
class Rows {
 public:
  // rules.size 0: each sample is a row.
  // multiple: rows as long as the longest of their microbatch are rounded up to it.
  // most: of the set only the first so many samples, before any are mixed or packed; empty: all.
  explicit Rows(std::shared_ptr<const IDataset> samples, const PackRules& rules = {}, int64_t multiple = 1,
                std::optional<int64_t> most = std::nullopt);

  const IDataset& samples() const { return *samples_; }
  int64_t used_samples() const { return used_samples_; }     // of these the first
  const Packing* packing() const { return packing_.get(); }  // null: each sample is a row
  int64_t size() const { return size_; }                     // in rows
  // Tokens of a row; where rows differ, of the longest.
  int64_t length() const { return length_; }
  bool is_ragged() const { return is_ragged_; }  // rows are as long as the longest of their microbatch
  // The rows' length in a microbatch whose longest row has so many tokens of text.
  int64_t length_for(int64_t text) const;
  int64_t text_of(int64_t row) const;                       // tokens of a row that do not fill it
  double mean_text() const;                                 // of all rows
  int64_t longest() const { return longest_; }              // tokens of the longest sample that a row has
  bool is_uneven() const { return samples_->is_uneven(); }  // samples may differ in length
  bool has_documents() const { return packing_ != nullptr || samples_->has_documents(); }
  // Returns how many tokens of the row are text; the others fill it. Throws Error{input} on a token outside
  // [0, vocabulary).
  int64_t read(int64_t row, int64_t vocabulary, const RowTarget& to) const;

 private:
  int64_t read_sample(int64_t sample, int64_t vocabulary, const RowTarget& to, int64_t column) const;

  std::shared_ptr<const IDataset> samples_;
  std::shared_ptr<const Packing> packing_;
  int64_t used_samples_ = 0, size_ = 0, length_ = 0, longest_ = 0, multiple_ = 1;
  bool is_ragged_ = false;
};

}  // namespace heddle
