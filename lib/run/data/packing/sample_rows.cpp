// Reading lengths, and packing what they tell.
#include "lib/run/data/packing/sample_rows.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"

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
      "a sample's length is a whole number from 2 to 2147483648, got '" + text::excerpt(line_text) + "'",
      "each line holds the number of tokens of one sample, the next one in the token file");
}

std::string words_of(const PackRules& rules) {
  if (rules.size == 0) return "off";
  return std::string(rules.packer == Packer::thd ? "thd" : "neat") + " packs of " +
         std::to_string(rules.size) + " tokens" +
         (rules.max_packs ? ", at most " + std::to_string(*rules.max_packs) : "");
}

}  // namespace

std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens) {
  std::ifstream in(lengths, std::ios::binary);
  if (!in || std::filesystem::is_directory(lengths))
    throw Error(ErrorCode::input, lengths.string(), "cannot be read");
  std::vector<int64_t> out;
  for (std::string line; std::getline(in, line);) out.push_back(length_of(line, lengths, out.size() + 1));
  if (in.bad()) throw Error(ErrorCode::input, lengths.string(), "cannot be read to its end");
  if (out.empty())
    throw Error(ErrorCode::input, lengths.string(), "is empty: it has the length of no sample",
                "each line holds the number of tokens of one sample, the next one in the token file");
  const int64_t sum = std::accumulate(out.begin(), out.end(), int64_t{0});
  if (sum != tokens.size())
    throw Error(ErrorCode::input, lengths.string(),
                "the lengths of " + std::to_string(out.size()) + " samples add up to " + std::to_string(sum) +
                    " tokens, and " + tokens.path().string() + " has " + std::to_string(tokens.size()),
                "each line holds the number of tokens of one sample, the next one in the token file");
  return out;
}

SampleRows rows_of_samples(std::span<const std::vector<int64_t>> lengths, const PackRules& rules,
                           int64_t length) {
  SampleRows out;
  std::vector<int64_t> inputs;
  std::string bytes;
  for (size_t file = 0; file < lengths.size(); ++file) {
    int64_t begin = 0;
    for (const int64_t tokens : lengths[file]) {
      out.samples.push_back({file, begin, tokens - 1});
      inputs.push_back(tokens - 1);
      begin += tokens;
    }
    bytes += std::to_string(lengths[file].size()) + ":";
    bytes.append(reinterpret_cast<const char*>(lengths[file].data()), lengths[file].size() * sizeof(int64_t));
  }
  out.lengths_sum = checkpoint::checksum(bytes);
  out.length = rules.size > 0 ? rules.size : length;
  out.packing = words_of(rules);
  out.packs = rules.size > 0 ? pack(inputs, rules) : unpacked(static_cast<int64_t>(inputs.size()));
  for (const int64_t one : inputs) {
    out.longest = std::max(out.longest, one);
    if (one <= out.length)
      out.longest_kept = std::max(out.longest_kept, one);
    else
      ++out.left_out;
  }
  return out;
}

}  // namespace heddle
