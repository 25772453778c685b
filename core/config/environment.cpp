// Environment variables inside a scalar.
#include <cctype>
#include <cstdlib>

#include "core/config/scalar.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::config {
namespace {

constexpr size_t kLongestExpanded = 1u << 20;  // bytes of a value after substitution

void append_bounded(std::string& out, std::string_view more, const std::string& where) {
  out += more;
  if (out.size() > kLongestExpanded)
    throw Error(ErrorCode::config, where,
                "more than " + std::to_string(kLongestExpanded) +
                    " bytes with its environment variables written out");
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

bool letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool variable_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

std::string variable(const std::string& name, const std::string_view* fallback, std::string_view token,
                     const std::string& where) {
  if (const char* value = std::getenv(name.c_str())) return value;
  if (fallback != nullptr) return std::string(*fallback);
  throw Error(ErrorCode::config, where,
              "the environment variable '" + text::excerpt(name) + "' is not set (needed by '" +
                  text::excerpt(token) + "')",
              "set it, or write a default: ${" + name + ",default}");
}

std::string braced(std::string_view token, const std::string& where) {
  std::string_view inside = trimmed(token.substr(2, token.size() - 3));
  if (inside.starts_with("oc.env:")) inside = trimmed(inside.substr(7));
  if (const size_t shell = inside.find(":-"); shell != inside.npos && shell < inside.find(','))
    throw Error(ErrorCode::config, where,
                "'" + text::excerpt(token) + "' has a default as a shell writes it, after ':-'",
                "a comma comes before a default: ${" + std::string(trimmed(inside.substr(0, shell))) + "," +
                    std::string(trimmed(inside.substr(shell + 2))) + "}");
  const size_t comma = inside.find(',');
  const std::string name(trimmed(inside.substr(0, comma)));
  if (comma == inside.npos) return variable(name, nullptr, token, where);
  const std::string_view fallback = trimmed(inside.substr(comma + 1));
  return variable(name, &fallback, token, where);
}

std::string with_braced(const std::string& text, const std::string& where) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find("${", at);
    const size_t end = begin == text.npos ? text.npos : text.find('}', begin);
    if (end == text.npos) return out + text.substr(at);
    out += text.substr(at, begin - at);
    if (end == begin + 2) {  // ${} is not a variable
      out += text[begin];
      at = begin + 1;
      continue;
    }
    append_bounded(out, braced(std::string_view(text).substr(begin, end + 1 - begin), where), where);
    at = end + 1;
  }
  return out;
}

// $VAR; the name may contain dots.
std::string with_bare(const std::string& text, const std::string& where) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '$' || at + 1 == text.size() || !letter(text[at + 1])) {
      out += text[at++];
      continue;
    }
    size_t end = at + 1;
    while (end < text.size() &&
           (variable_character(text[end]) ||
            (text[end] == '.' && end + 1 < text.size() && variable_character(text[end + 1]))))
      ++end;
    const std::string token = text.substr(at, end - at);
    append_bounded(out, variable(token.substr(1), nullptr, token, where), where);
    at = end;
  }
  return out;
}

}  // namespace

std::string with_environment(const std::string& text, const std::string& where) {
  if (text.find('$') == text.npos) return text;
  return with_bare(with_braced(text, where), where);
}

}  // namespace heddle::config
