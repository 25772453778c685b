// Finds and reads samples of token files.
#include "lib/data/tokens/token_dataset.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/tokens/token_check.h"
#include "lib/data/tokens/token_file.h"

namespace heddle {
namespace {

int64_t length_of(const std::string& line, const std::filesystem::path& file, size_t number) {
  const std::string_view line_text =
      line.ends_with('\r') ? std::string_view(line).substr(0, line.size() - 1) : line;
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(line_text.data(), line_text.data() + line_text.size(), value);
  if (failed == std::errc() && end == line_text.data() + line_text.size() && value >= 2 &&
      value <= int64_t{1} << 31)
    return value;
  throw Error(
      ErrorCode::input, file.string() + ":" + std::to_string(number),
      "a sample's length must be an integer from 2 to 2147483648, got '" + text::excerpt(line_text) + "'",
      "write on each line the number of tokens of one sample, in the order of the token file");
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
                "the longest file has " + std::to_string(longest) + " tokens; one sample of seq_len " +
                    std::to_string(sequence_length) + " needs " + std::to_string(sequence_length + 1),
                "use more text, or a smaller dataset.seq_len");
}

TokenDataset::TokenDataset(std::vector<TokenFile> files, const std::vector<std::vector<int64_t>>& lengths,
                           int64_t row_length, std::optional<int64_t> document_end)
    : files_(std::move(files)), sequence_length_(row_length), document_end_(document_end) {
  std::string bytes;
  for (size_t file = 0; file < lengths.size(); ++file) {
    int64_t begin = 0;
    for (const int64_t tokens : lengths[file]) {
      samples_.push_back({file, begin, tokens - 1});
      begin += tokens;
    }
    bytes += std::to_string(lengths[file].size()) + ":";
    bytes.append(reinterpret_cast<const char*>(lengths[file].data()), lengths[file].size() * sizeof(int64_t));
  }
  lengths_sum_ = checkpoint::checksum(bytes);
}

void TokenDataset::keep_first(int64_t samples) {
  for (int64_t& first : first_) first = std::min(first, samples);
}

void TokenDataset::expect(int64_t vocabulary) {
  vocabulary_ = vocabulary;
}

void TokenDataset::add_inputs(std::vector<DataInput> inputs) {
  std::move(inputs.begin(), inputs.end(), std::back_inserter(inputs_));
}

int64_t TokenDataset::size() const {
  return samples_.empty() ? first_.back() : static_cast<int64_t>(samples_.size());
}

int64_t TokenDataset::length(int64_t sample) const {
  return samples_.empty() ? sequence_length_ : samples_[static_cast<size_t>(sample)].inputs;
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

std::map<std::string, std::string> TokenDataset::settings() const {
  return {{"dataset.reset_attention_at", document_end_ ? std::to_string(*document_end_) : "null"},
          {"dataset.lengths", samples_.empty() ? "null" : "of checksum " + lengths_sum_}};
}

DataTokenizer TokenDataset::tokenizer() const {
  DataTokenizer out;
  for (const TokenFile& file : files_) {
    if (!file.tokenizer()) continue;
    const TokenNote& made = *file.tokenizer();
    out = {made.name, made.digest, made.vocabulary, made.end_token};
    break;
  }
  out.holds_bytes =
      std::all_of(files_.begin(), files_.end(), [](const TokenFile& file) { return file.holds_bytes(); });
  return out;
}

std::string TokenDataset::tokenizer_content() const {
  for (const TokenFile& file : files_)
    if (file.tokenizer()) return file.tokenizer()->content;
  return "";
}

bool TokenDataset::has_token(int64_t token) const {
  return std::any_of(files_.begin(), files_.end(), [&](const TokenFile& file) { return file.has(token); });
}

TokenDataset::Sample TokenDataset::at(int64_t sample) const {
  if (!samples_.empty()) return samples_[static_cast<size_t>(sample)];
  const size_t file = std::upper_bound(first_.begin(), first_.end(), sample) - first_.begin() - 1;
  return {file, (sample - first_[file]) * sequence_length_, sequence_length_};
}

// The token that ends a document belongs to it.
void TokenDataset::read(int64_t number, const SampleTarget& to) const {
  const Sample sample = at(number);
  const TokenFile& file = files_[sample.file];
  file.read(sample.begin, to.tokens);
  std::copy(to.tokens.begin() + 1, to.tokens.end(), to.labels.begin());
  file.read(sample.begin + sample.inputs, to.labels.last(1));
  const auto check = [&](int64_t token, size_t at) {
    if (token < 0 || token >= vocabulary_)
      throw file.outside(sample.begin + static_cast<int64_t>(at), token, vocabulary_);
  };
  for (size_t i = 0; i < to.tokens.size(); ++i) {
    check(to.tokens[i], i);
    if (i > 0 && to.tokens[i - 1] == document_end_) to.begin_document(static_cast<int64_t>(i));
  }
  check(to.labels.back(), to.tokens.size());
}

// A token outside the vocabulary may be in no sample, because tokens at the end of a file that do not fill a
// row are not read.
bool TokenDataset::verify(DataNotes& notes) const {
  return std::all_of(files_.begin(), files_.end(), [&](const TokenFile& file) {
    if (file.size() == 0 || in_vocabulary(range_of(file.type()), vocabulary_)) return true;
    return in_vocabulary(noted_range(file, notes), vocabulary_);
  });
}

std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens) {
  refuse_irregular(lengths, ErrorCode::input);
  std::ifstream in(lengths, std::ios::binary);
  if (!in) throw Error(ErrorCode::input, lengths.string(), "cannot be read");
  std::vector<int64_t> out;
  for (std::string line; std::getline(in, line);) out.push_back(length_of(line, lengths, out.size() + 1));
  if (in.bad()) throw Error(ErrorCode::input, lengths.string(), "cannot be read completely");
  if (out.empty())
    throw Error(ErrorCode::input, lengths.string(), "is empty: it contains no sample length",
                "write on each line the number of tokens of one sample, in the order of the token file");
  const int64_t sum = std::accumulate(out.begin(), out.end(), int64_t{0});
  if (sum != tokens.size())
    throw Error(ErrorCode::input, lengths.string(),
                "the lengths of " + std::to_string(out.size()) + " samples add up to " + std::to_string(sum) +
                    " tokens, but " + tokens.path().string() + " has " + std::to_string(tokens.size()),
                "write on each line the number of tokens of one sample, in the order of the token file");
  return out;
}

}  // namespace heddle
