// YAML 1.1 scalars, parsed without regular expressions, which would be compiled at start.
#include "core/config/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "core/base/real.h"
#include "heddle/base/error.h"

namespace heddle::config {
namespace {

constexpr size_t kLongestLiteral = 1000;  // longer strings are never read as a literal

bool is_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == text.npos;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  return out;
}

// An integer beyond 64 bits becomes the nearest real.
Node whole_number(std::string_view digits, int radix, bool negative, const Mark& mark,
                  const std::string& path) {
  const std::string clean = (negative ? "-" : "") + without_underscores(digits);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(clean.data(), clean.data() + clean.size(), value, radix);
  if (error == std::errc() && end == clean.data() + clean.size()) return Node::integer(value, mark, path);
  if (error == std::errc::result_out_of_range)
    return Node::real(radix == 10 ? text::real(clean) : std::numeric_limits<double>::infinity(), mark, path);
  return Node::text(std::string(digits), mark, path);
}

// 1:30 is 90; a fraction may follow the last colon.
std::optional<double> sexagesimal(std::string_view text, bool fraction) {
  double value = 0;
  size_t from = 0;
  for (bool first = true;; first = false) {
    const size_t colon = text.find(':', from);
    const std::string part =
        without_underscores(text.substr(from, colon == text.npos ? colon : colon - from));
    const bool last = colon == text.npos;
    const std::string whole = last && fraction ? part.substr(0, part.find('.')) : part;
    if (!all_of(whole, "0123456789")) return {};
    if (!first && (whole.size() > 2 || (whole.size() == 2 && whole[0] > '5'))) return {};
    value = value * 60 + text::real(part);
    if (last) return first ? std::nullopt : std::optional(value);
    from = colon + 1;
  }
}

std::optional<Node> yaml_integer(std::string_view text, const Mark& mark, const std::string& path) {
  const bool negative = text[0] == '-';
  std::string_view rest = negative || text[0] == '+' ? text.substr(1) : text;
  if (rest.empty() || !digit(rest[0])) return {};
  if (rest.starts_with("0b") && all_of(rest.substr(2), "01_"))
    return whole_number(rest.substr(2), 2, negative, mark, path);
  if (rest.starts_with("0x") && all_of(rest.substr(2), "0123456789abcdefABCDEF_"))
    return whole_number(rest.substr(2), 16, negative, mark, path);
  if (rest[0] == '0' && rest.size() > 1)
    return all_of(rest, "01234567_") ? std::optional(whole_number(rest, 8, negative, mark, path))
                                     : std::nullopt;
  if (all_of(rest, "0123456789_")) return whole_number(rest, 10, negative, mark, path);
  if (rest.find(':') != rest.npos && rest[0] != '0' && rest.find('.') == rest.npos)
    if (const auto value = sexagesimal(rest, false)) {
      const double signed_value = negative ? -*value : *value;
      if (*value >= 0x1p63) return Node::real(signed_value, mark, path);
      return Node::integer(static_cast<int64_t>(signed_value), mark, path);
    }
  return {};
}

// The exponent of a YAML 1.1 float needs a sign: 1.0e+3 is a float, 1.0e3 is a string.
bool exponent_fits(std::string_view text) {
  return text.empty() || ((text[0] == 'e' || text[0] == 'E') && text.size() > 2 &&
                          (text[1] == '+' || text[1] == '-') && all_of(text.substr(2), "0123456789"));
}

std::optional<Node> yaml_real(std::string_view text, const Mark& mark, const std::string& path) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const bool sign = text[0] == '-' || text[0] == '+';
  const std::string_view rest = sign ? text.substr(1) : text;
  if (is_any(rest, {".inf", ".Inf", ".INF"}))
    return Node::real(text[0] == '-' ? -infinity : infinity, mark, path);
  if (is_any(text, {".nan", ".NaN", ".NAN"}))
    return Node::real(std::numeric_limits<double>::quiet_NaN(), mark, path);
  const size_t dot = rest.find('.');
  if (dot == rest.npos || (dot == 0 && (sign || rest.size() < 2 || !digit(rest[1])))) return {};
  if (dot > 0 && !digit(rest[0])) return {};
  if (rest.find(':') != rest.npos) {
    const auto value = sexagesimal(rest, true);
    return value ? std::optional(Node::real(text[0] == '-' ? -*value : *value, mark, path)) : std::nullopt;
  }
  if (dot > 0 && !all_of(rest.substr(0, dot), "0123456789_")) return {};
  const size_t end = std::min(rest.find_first_not_of("0123456789_", dot + 1), rest.size());
  if (!exponent_fits(rest.substr(end))) return {};
  const std::string clean = without_underscores(text);
  return Node::real(text::real(clean), mark, path);
}

}  // namespace

std::optional<Node> yaml_meaning(std::string_view text, const Mark& mark, const std::string& path) {
  if (is_any(text, {"", "~", "null", "Null", "NULL"})) return Node::null(mark, path);
  if (is_any(text, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}))
    return Node::boolean(true, mark, path);
  if (is_any(text, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}))
    return Node::boolean(false, mark, path);
  if (text.find_first_of("-+.0123456789") != 0) return {};
  if (auto integer = yaml_integer(text, mark, path)) return integer;
  return yaml_real(text, mark, path);
}

namespace {

// ${HEDDLE_CONFIG_DIR} is the directory of the file that holds the value; of an override the working
// directory.
std::string with_variables(std::string_view text, const Mark& mark, const std::string& path) {
  constexpr std::string_view kDirectory = "${HEDDLE_CONFIG_DIR}";
  const std::string where = Node::null(mark, path).where();
  const std::filesystem::path directory = std::filesystem::path(mark.file).parent_path();
  std::string out;
  for (size_t at = text.find(kDirectory); at != text.npos; at = text.find(kDirectory)) {
    out += with_environment(std::string(text.substr(0, at)), where);
    out += directory.empty() ? "." : directory.string();
    text.remove_prefix(at + kDirectory.size());
  }
  return out + with_environment(std::string(text), where);
}

}  // namespace

Node string_meaning(const std::string& text, const Mark& mark, const std::string& path) {
  const std::string value = with_variables(text, mark, path);
  if (is_any(value, {"none", "None"})) return Node::null(mark, path);
  if (is_any(value, {"true", "True"})) return Node::boolean(true, mark, path);
  if (is_any(value, {"false", "False"})) return Node::boolean(false, mark, path);
  if (value.size() <= kLongestLiteral)
    if (auto literal = python_literal(value, mark, path)) return *literal;
  return Node::text(value, mark, path);
}

bool names_code(std::string_view key) {
  return key == "_target_" || key.ends_with("_fn");
}

}  // namespace heddle::config
