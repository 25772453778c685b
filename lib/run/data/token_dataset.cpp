// Finding and reading a row.
#include "lib/run/data/token_dataset.h"

#include <glob.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {

namespace {

Error outside(const TokenFile& file, int64_t place, int64_t token, int64_t vocabulary) {
  return Error(ErrorCode::input, file.path().string(),
               "token " + std::to_string(place) + " is " + std::to_string(token) +
                   "; the model's vocabulary has " + std::to_string(vocabulary) + " tokens",
               "were the tokens made for this model?");
}

// Of the samples that rows have, in the order of the file `number`.
std::optional<int64_t> first_outside_in_packs(const SampleRows& rows, size_t number, const TokenFile& file,
                                              int64_t vocabulary) {
  std::vector<bool> in_packs(rows.samples.size());
  for (int64_t pack = 0; pack < rows.packs.size(); ++pack)
    for (const int64_t sample : rows.packs[pack]) in_packs[static_cast<size_t>(sample)] = true;
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < rows.samples.size(); ++i) {
    const Sample& one = rows.samples[i];
    if (one.file != number || !in_packs[i]) continue;
    tokens.resize(static_cast<size_t>(one.inputs) + 1);
    file.read(one.begin, tokens);
    for (size_t at = 0; at < tokens.size(); ++at)
      if (tokens[at] < 0 || tokens[at] >= vocabulary) return one.begin + static_cast<int64_t>(at);
  }
  return std::nullopt;
}

}  // namespace

MatchingFiles matching_files(std::span<const std::string> patterns) {
  MatchingFiles out;
  std::set<std::filesystem::path> met;  // with links resolved
  for (const std::string& pattern : patterns) {
    glob_t found{};
    if (glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found) != 0) found.gl_pathc = 0;
    if (found.gl_pathc == 0) out.lacking.push_back(pattern);
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      const std::filesystem::path file = found.gl_pathv[i];
      std::error_code failed;
      const std::filesystem::path whole = std::filesystem::canonical(file, failed);
      (met.insert(failed ? file : whole).second ? out.files : out.repeated).push_back(file);
    }
    globfree(&found);
  }
  std::sort(out.files.begin(), out.files.end());
  return out;
}

TokenDataset::TokenDataset(std::vector<TokenFile> files, int64_t sequence_length,
                           std::optional<int64_t> document_end)
    : files_(std::move(files)), sequence_length_(sequence_length), document_end_(document_end) {
  int64_t samples = 0, longest = 0;
  for (const TokenFile& file : files_) {
    first_.push_back(samples);
    samples += std::max<int64_t>(0, (file.size() - 1) / sequence_length);
    longest = std::max(longest, file.size());
  }
  first_.push_back(samples);
  if (samples == 0)
    throw Error(ErrorCode::input, files_.empty() ? "dataset" : files_.front().path().string(),
                "the longest file holds " + std::to_string(longest) + " tokens; one sample of seq_len " +
                    std::to_string(sequence_length) + " needs " + std::to_string(sequence_length + 1),
                "give more text, or a smaller dataset.seq_len");
}

TokenDataset::TokenDataset(std::vector<TokenFile> files, SampleRows rows, std::optional<int64_t> document_end)
    : files_(std::move(files)),
      samples_(std::move(rows)),
      sequence_length_(samples_->length),
      document_end_(document_end) {}

void TokenDataset::keep_first(int64_t rows) {
  for (int64_t& first : first_) first = std::min(first, rows);
}

int64_t TokenDataset::label_tokens() const {
  if (!samples_) return size() * sequence_length_;
  int64_t count = 0;
  for (int64_t pack = 0; pack < samples_->packs.size(); ++pack)
    for (const int64_t sample : samples_->packs[pack])
      count += samples_->samples[static_cast<size_t>(sample)].inputs;
  return count;
}

std::string TokenDataset::digest() const {
  int64_t tokens = 0;
  std::string sums;
  for (const TokenFile& file : files_) {
    tokens += file.size();
    sums += file.digest() + "\n";
  }
  return std::to_string(tokens) + " tokens of checksum " + checkpoint::checksum(sums);
}

const TokenNote* TokenDataset::tokenizer() const {
  for (const TokenFile& file : files_)
    if (file.tokenizer()) return &*file.tokenizer();
  return nullptr;
}

bool TokenDataset::has_token(int64_t token) const {
  return std::any_of(files_.begin(), files_.end(), [&](const TokenFile& file) { return file.has(token); });
}

bool TokenDataset::holds_bytes() const {
  return std::all_of(files_.begin(), files_.end(), [](const TokenFile& file) { return file.holds_bytes(); });
}

int64_t TokenDataset::read(int64_t row, int64_t vocabulary, const RowTarget& to) const {
  if (!samples_) {
    const size_t at = std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() - 1;
    read_sample({at, (row - first_[at]) * sequence_length_, sequence_length_}, vocabulary, to, 0);
    return sequence_length_;
  }
  int64_t column = 0;
  for (const int64_t sample : samples_->packs[row]) {
    const Sample& one = samples_->samples[static_cast<size_t>(sample)];
    read_sample(one, vocabulary, to, column);
    column += one.inputs;
  }
  if (column == sequence_length_) return column;
  to.documents.push_back(static_cast<int32_t>(to.first + column));
  std::fill(to.tokens.begin() + column, to.tokens.end(), 0);
  std::fill(to.labels.begin() + column, to.labels.end(), Batch::kIgnore);
  return column;
}

// The token that ends a document is its last.
void TokenDataset::read_sample(const Sample& sample, int64_t vocabulary, const RowTarget& to,
                               int64_t column) const {
  const TokenFile& file = files_[sample.file];
  const auto count = static_cast<size_t>(sample.inputs);
  const std::span<int64_t> tokens = to.tokens.subspan(static_cast<size_t>(column), count);
  const std::span<int64_t> labels = to.labels.subspan(static_cast<size_t>(column), count);
  file.read(sample.begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
  file.read(sample.begin + sample.inputs, labels.last(1));
  const auto check = [&](int64_t token, size_t at) {
    if (token < 0 || token >= vocabulary)
      throw outside(file, sample.begin + static_cast<int64_t>(at), token, vocabulary);
  };
  const auto first = static_cast<int32_t>(to.first + column);
  to.documents.push_back(first);
  for (size_t i = 0; i < count; ++i) {
    check(tokens[i], i);
    if (i > 0 && tokens[i - 1] == document_end_) to.documents.push_back(first + static_cast<int32_t>(i));
  }
  check(labels.back(), count);
}

// In no row: the last tokens of a file, fewer than a row has; samples that are left out.
void TokenDataset::refuse_outside(const TokenFile& file, int64_t vocabulary) const {
  const auto number = static_cast<size_t>(&file - files_.data());
  const std::optional<int64_t> place =
      samples_ ? first_outside_in_packs(*samples_, number, file, vocabulary) : file.first_outside(vocabulary);
  const int64_t rows = samples_ ? 0 : first_[number + 1] - first_[number];
  if (!place || (!samples_ && (rows == 0 || *place > rows * sequence_length_))) return;
  int64_t token = 0;
  file.read(*place, {&token, 1});
  throw outside(file, *place, token, vocabulary);
}

}  // namespace heddle
