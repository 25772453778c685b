// Reads the lengths of a token file's samples.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/data/tokens/token_dataset.h"

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

}  // namespace

std::vector<int64_t> read_lengths(const std::filesystem::path& lengths, const TokenFile& tokens) {
  refuse_irregular(lengths, ErrorCode::input);
  std::ifstream in(lengths, std::ios::binary);
  if (!in) throw Error(ErrorCode::input, lengths.string(), "cannot be read");
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

}  // namespace heddle
