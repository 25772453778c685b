// Packs samples by length and reads rows.
#include "lib/data/rows.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"

namespace heddle {
namespace {

std::string words_of(const PackRules& rules) {
  return std::string(rules.packer == Packer::thd ? "thd" : "neat") + " packs of " +
         std::to_string(rules.size) + " tokens" +
         (rules.max_packs ? ", at most " + std::to_string(*rules.max_packs) : "");
}

Packing packing_of(const IDataset& samples, int64_t count, const PackRules& rules) {
  Packing out;
  out.text = words_of(rules);
  std::vector<int64_t> lengths(static_cast<size_t>(count));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t one = lengths[i] = samples.length(static_cast<int64_t>(i));
    out.longest = std::max(out.longest, one);
    if (one <= rules.size)
      out.longest_kept = std::max(out.longest_kept, one);
    else
      ++out.left_out;
  }
  out.packs = pack(lengths, rules);
  return out;
}

// Token files have already reported such tokens, with file and position.
void check_vocabulary(std::span<const int64_t> tokens, int64_t sample, int64_t vocabulary) {
  int64_t least = 0, most = 0;
  for (const int64_t token : tokens) {
    least = std::min(least, token);
    most = std::max(most, token);
  }
  if (least >= 0 && most < vocabulary) return;
  throw Error(ErrorCode::input, "dataset",
              "sample " + std::to_string(sample) + " has the token " +
                  std::to_string(least < 0 ? least : most) + "; the model's vocabulary has " +
                  std::to_string(vocabulary) + " tokens",
              "check that the data was tokenized with this model's tokenizer");
}

// Checks the labels, because a plugin may not write all of them.
void check_labels(std::span<const int64_t> labels, int64_t sample, int64_t vocabulary) {
  const auto wrong = std::find_if(labels.begin(), labels.end(), [&](int64_t label) {
    return (label < 0 || label >= vocabulary) && label != Batch::kIgnore;
  });
  if (wrong == labels.end()) return;
  throw Error(ErrorCode::input, "dataset",
              "sample " + std::to_string(sample) + " has the label " + std::to_string(*wrong) +
                  "; a label is one of the " + std::to_string(vocabulary) +
                  " tokens of the model's vocabulary, or " + std::to_string(Batch::kIgnore) + " for no loss",
              "check that read() of the data set writes every label");
}

}  // namespace

Rows::Rows(std::shared_ptr<const IDataset> samples, const PackRules& rules, int64_t multiple,
           std::optional<int64_t> most)
    : samples_(std::move(samples)),
      used_samples_(std::min(samples_->size(), most.value_or(samples_->size()))),
      multiple_(multiple) {
  if (rules.size == 0) {
    size_ = used_samples_;
    length_ = samples_->row_length();
    longest_ = samples_->longest();
    is_ragged_ = length_ == 0;
    if (is_ragged_) length_ = length_for(longest_);
    return;
  }
  packing_ = std::make_shared<const Packing>(packing_of(*samples_, used_samples_, rules));
  size_ = packing_->packs.size();
  length_ = rules.size;
  longest_ = packing_->longest_kept;
}

int64_t Rows::length_for(int64_t text) const {
  return is_ragged_ ? (std::max<int64_t>(text, 1) + multiple_ - 1) / multiple_ * multiple_ : length_;
}

int64_t Rows::text_tokens(int64_t row) const {
  if (packing_ == nullptr) return samples_->length(row);
  int64_t tokens = 0;
  for (const int64_t sample : packing_->packs[row]) tokens += samples_->length(sample);
  return tokens;
}

double Rows::mean_text() const {
  if (packing_ == nullptr && !is_uneven()) return static_cast<double>(length_);
  double sum = 0;
  for (int64_t row = 0; row < size_; ++row) sum += static_cast<double>(text_tokens(row));
  return sum / static_cast<double>(size_);
}

int64_t Rows::read(int64_t row, int64_t vocabulary, const RowTarget& to) const {
  int64_t column = 0;
  if (packing_ == nullptr) {
    column = read_sample(row, vocabulary, to, 0);
  } else {
    for (const int64_t sample : packing_->packs[row]) column += read_sample(sample, vocabulary, to, column);
  }
  if (column == static_cast<int64_t>(to.tokens.size())) return column;
  if (has_documents()) to.documents.push_back(static_cast<int32_t>(to.first + column));
  std::fill(to.tokens.begin() + column, to.tokens.end(), 0);
  std::fill(to.labels.begin() + column, to.labels.end(), Batch::kIgnore);
  return column;
}

// Reads the sample to `column` of the row and returns the number of its tokens.
int64_t Rows::read_sample(int64_t sample, int64_t vocabulary, const RowTarget& to, int64_t column) const {
  const int64_t length = samples_->length(sample), room = static_cast<int64_t>(to.tokens.size()) - column;
  if (length < 0 || length > room)
    throw Error(ErrorCode::plugin_failed, "dataset",
                "sample " + std::to_string(sample) + " has " + std::to_string(length) +
                    " tokens, and its row has room for " + std::to_string(room),
                "check row_length() and longest() of the data set");
  const auto begin = static_cast<size_t>(column), count = static_cast<size_t>(length);
  const auto tokens = to.tokens.subspan(begin, count), labels = to.labels.subspan(begin, count);
  to.documents.push_back(static_cast<int32_t>(to.first + column));
  samples_->read(sample, {tokens, labels, to.documents, to.first + column});
  check_vocabulary(tokens, sample, vocabulary);
  check_labels(labels, sample, vocabulary);
  return length;
}

}  // namespace heddle
