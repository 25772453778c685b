// Samples of a fixed length cut from one or several token files.
#include "trainer/data/token_dataset.h"

#include <glob.h>

#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {

namespace {

Error outside(const TokenFile& file, int64_t place, int64_t token, int64_t vocabulary) {
  return Error(ErrorCode::input, file.path().string(),
               "token " + std::to_string(place) + " is " + std::to_string(token) +
                   "; the model's vocabulary has " + std::to_string(vocabulary) + " tokens",
               "were the tokens made for this model?");
}

}  // namespace

std::vector<std::filesystem::path> matching_files(std::span<const std::string> patterns) {
  std::set<std::filesystem::path> files;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    if (glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) files.insert(found.gl_pathv[i]);
    globfree(&found);
  }
  return {files.begin(), files.end()};
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

bool TokenDataset::holds_bytes() const {
  return std::all_of(files_.begin(), files_.end(), [](const TokenFile& file) { return file.holds_bytes(); });
}

void TokenDataset::read(int64_t sample, int64_t vocabulary, std::span<int64_t> tokens) const {
  const size_t at = std::upper_bound(first_.begin(), first_.end(), sample) - first_.begin() - 1;
  const int64_t begin = (sample - first_[at]) * sequence_length_;
  files_[at].read(begin, tokens);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw outside(files_[at], begin + static_cast<int64_t>(i), tokens[i], vocabulary);
}

// The last tokens of a file, fewer than a sample has, are in none.
void TokenDataset::refuse_outside(const TokenFile& file, int64_t vocabulary) const {
  const std::optional<int64_t> place = file.first_outside(vocabulary);
  if (!place || *place > (file.size() - 1) / sequence_length_ * sequence_length_) return;
  int64_t token = 0;
  file.read(*place, {&token, 1});
  throw outside(file, *place, token, vocabulary);
}

}  // namespace heddle
