// The nearest word is found by edit distance; JSON strings by the JSON library.
#include "heddle/base/text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace heddle::text {
namespace {

// The number of edits from a to b where it is below `limit`; else `limit` or more.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit, std::vector<size_t>& row) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  row.resize(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    if (*std::min_element(row.begin(), row.end()) >= limit) return limit;
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string lower(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string wanted = lower(word);
  std::string best;
  size_t best_distance = (wanted.size() < 5 ? 1 : std::max<size_t>(2, wanted.size() / 3)) + 1;
  std::vector<size_t> row;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(wanted, lower(candidate), best_distance, row);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

std::string quoted(std::string_view value) {
  return nlohmann::json(std::string(value)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string excerpt(std::string_view value, size_t most) {
  size_t end = std::min(value.size(), most);
  if (end < value.size())
    while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // a whole character
  std::string out;
  for (const char c : value.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      out += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", byte);
    out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : escape;
  }
  return end == value.size() ? out : out + "... (" + std::to_string(value.size()) + " bytes)";
}

}  // namespace heddle::text

namespace heddle {

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
  return text;
}

std::string bytes_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

}  // namespace heddle
