// Recognises TOML and JSON by the first line that is neither empty nor a comment.
#include "core/config/other_format.h"

#include <sstream>

namespace heddle::config {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.\" \t";

// "[section]", "[[list]]" or "key = value".
bool is_toml(const std::string& line) {
  if (line[0] == '[') {
    const size_t close = line.find(']');
    return close != line.npos && line.find(',') == line.npos && close > 1 &&
           line.find_first_not_of("[]" + std::string(kWord)) == line.npos;
  }
  const size_t sign = line.find('=');
  return sign != line.npos && sign > 0 && line.substr(0, sign).find_first_not_of(kWord) == line.npos;
}

}  // namespace

std::string other_format(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(kBlank);
    if (first == line.npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(kBlank) + 1 - first);
    if (line[0] == '{' || line.starts_with("//"))
      return "this looks like JSON; YAML reads JSON without comments and with a value after each colon";
    return is_toml(line) ? "this looks like TOML; heddle reads YAML: 'key: value' below 'section:'" : "";
  }
  return "";
}

}  // namespace heddle::config
