// A small reader of Python literals: numbers, strings, None, True, False, lists, tuples, sets and dicts.
#include "core/config/python_literal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/base/real.h"
#include "core/config/scalar.h"

namespace heddle::config {
namespace {

struct NoLiteral {};  // the text is a string, not a literal

constexpr int kDeepest = 100;

bool word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class LiteralReader {
 public:
  LiteralReader(std::string_view text, const Mark& mark, const std::string& path)
      : text_(text), mark_(mark), path_(path) {}

  Node read() {
    skip_lines();
    std::vector<Node> items{value()};
    bool tuple = false;
    for (skip_blanks(); peek() == ','; skip_blanks()) {
      tuple = true;
      ++at_;
      skip_blanks();
      if (at_ < text_.size() && peek() != '\n')
        items.push_back(value());
      else
        break;
    }
    skip_lines();
    if (at_ != text_.size()) throw NoLiteral();
    return tuple ? Node::list(std::move(items), mark_, path_) : items.front();
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_comment() {
    if (peek() == '#')
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\f') ++at_;
    skip_comment();
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n' || peek() == '\r'; skip_blanks()) ++at_;
  }

  Node value() {
    if (++depth_ > kDeepest) throw NoLiteral();
    Node out;
    const char c = peek();
    if (c == '[')
      out = sequence(']');
    else if (c == '(')
      out = sequence(')');
    else if (c == '{')
      out = braces();
    else if (c == '-' || c == '+' || c == '.' || std::isdigit(static_cast<unsigned char>(c)))
      out = number();
    else if (c == '\'' || c == '"')
      out = strings("");
    else
      out = name();
    --depth_;
    return out;
  }

  Node name() {
    const size_t from = at_;
    while (word_character(peek())) ++at_;
    const std::string_view word = text_.substr(from, at_ - from);
    if ((peek() == '\'' || peek() == '"') && (word == "r" || word == "R" || word == "u" || word == "U"))
      return strings(word);
    if (word == "None") return Node::null(mark_, path_);
    if (word == "True" || word == "False") return Node::boolean(word == "True", mark_, path_);
    throw NoLiteral();
  }

  Node number() {
    const char sign = peek();
    if (sign == '-' || sign == '+') {
      ++at_;
      skip_blanks();
    }
    const size_t from = at_;
    while (word_character(peek()) || peek() == '.' ||
           ((peek() == '+' || peek() == '-') && exponent_before(from)))
      ++at_;
    auto out = python_number(text_.substr(from, at_ - from), sign == '-', mark_, path_);
    if (!out) throw NoLiteral();
    return *out;
  }

  bool exponent_before(size_t from) const {
    return at_ > from && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E') &&
           !(text_.substr(from).starts_with("0x") || text_.substr(from).starts_with("0X"));
  }

  // After the opening bracket. (x) is x; (x,) is a sequence of one.
  Node sequence(char close) {
    ++at_;
    std::vector<Node> items;
    bool comma = false;
    for (skip_lines(); peek() != close; skip_lines()) {
      if (!items.empty() && !comma) throw NoLiteral();
      items.push_back(value());
      skip_lines();
      comma = peek() == ',';
      if (comma) ++at_;
    }
    ++at_;
    if (close == ')' && items.size() == 1 && !comma) return items.front();
    return Node::list(std::move(items), mark_, path_);
  }

  // A dict, or a set (read as a list).
  Node braces() {
    ++at_;
    std::vector<Node> items;
    std::vector<Node::Entry> entries;
    bool comma = true;
    for (skip_lines(); peek() != '}'; skip_lines()) {
      if (!comma) throw NoLiteral();
      Node key = value();
      skip_lines();
      if (peek() == ':' && items.empty()) {
        ++at_;
        skip_lines();
        if (key.kind() != Node::Kind::text) throw NoLiteral();
        entries.emplace_back(key.as_text(), value());
        skip_lines();
      } else if (entries.empty()) {
        items.push_back(std::move(key));
      } else {
        throw NoLiteral();
      }
      comma = peek() == ',';
      if (comma) ++at_;
    }
    ++at_;
    if (!items.empty()) return Node::list(std::move(items), mark_, path_);
    Node out = Node::map({}, mark_, path_);
    for (auto& [key, item] : entries) out = out.with(key, std::move(item));  // the last of equal keys wins
    return out;
  }

  // One string or several side by side.
  Node strings(std::string_view prefix) {
    std::string out = string(!prefix.empty() && (prefix == "r" || prefix == "R"));
    for (skip_blanks(); peek() == '\'' || peek() == '"'; skip_blanks()) out += string(false);
    return Node::text(std::move(out), mark_, path_);
  }

  std::string string(bool raw) {
    const char quote = text_[at_];
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_, 3) == three;
    at_ += is_long ? 3 : 1;
    std::string out;
    for (;;) {
      if (at_ >= text_.size() || (!is_long && peek() == '\n')) throw NoLiteral();
      if (is_long ? text_.substr(at_, 3) == three : peek() == quote) break;
      if (peek() != '\\') {
        out += text_[at_++];
        continue;
      }
      if (raw) {
        out += text_.substr(at_, 2);
        at_ += 2;
        continue;
      }
      const auto used = python_escape(text_.substr(at_), out);
      if (used == 0) throw NoLiteral();
      at_ += used;
    }
    at_ += is_long ? 3 : 1;
    return out;
  }

  std::string_view text_;
  const Mark& mark_;
  const std::string& path_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<Node> python_literal(std::string_view text, const Mark& mark, const std::string& path) {
  try {
    return LiteralReader(text, mark, path).read();
  } catch (const NoLiteral&) {
    return std::nullopt;
  }
}

namespace {

// Digits with single underscores between them; an underscore may come first after a prefix such as 0x.
bool digits_fit(std::string_view text, std::string_view allowed) {
  if (text.empty() || text.back() == '_') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && (i + 1 == text.size() || text[i + 1] == '_')) return false;
    if (text[i] != '_' && allowed.find(text[i]) == allowed.npos) return false;
  }
  return true;
}

std::string clean(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  return out;
}

std::optional<Node> whole(std::string_view text, int radix, bool negative, const Mark& mark,
                          const std::string& path) {
  const std::string digits = (negative ? "-" : "") + clean(text);
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, radix);
  if (result.ec == std::errc()) return Node::integer(value, mark, path);
  const double beyond = radix == 10 ? text::real(digits) : std::numeric_limits<double>::infinity();
  return Node::real(beyond, mark, path);
}

bool real_fits(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t exponent = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, exponent);
  if (exponent != text.npos) {
    std::string_view power = text.substr(exponent + 1);
    if (!power.empty() && (power[0] == '+' || power[0] == '-')) power.remove_prefix(1);
    if (power.starts_with('_') || !digits_fit(power, kDigits)) return false;
  }
  const size_t dot = mantissa.find('.');
  const std::string_view before = mantissa.substr(0, dot);
  const std::string_view after = dot == mantissa.npos ? "" : mantissa.substr(dot + 1);
  if (before.empty() && after.empty()) return false;
  if (!before.empty() && (before[0] == '_' || !digits_fit(before, kDigits))) return false;
  return after.empty() || (after[0] != '_' && digits_fit(after, kDigits));
}

size_t append_code_point(std::string_view hex, size_t used, std::string& out) {
  uint32_t code = 0;
  const auto result = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  if (hex.size() + 2 != used || result.ptr != hex.data() + hex.size() || code > 0x10FFFF) return 0;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
  return used;
}

}  // namespace

std::optional<Node> python_number(std::string_view text, bool negative, const Mark& mark,
                                  const std::string& path) {
  if (text.empty()) return {};
  if (text.size() > 2 && text[0] == '0') {
    const char letter = text[1] | 0x20;
    const std::string_view rest = text.substr(2);
    if (letter == 'x' && digits_fit(rest, "0123456789abcdefABCDEF"))
      return whole(rest, 16, negative, mark, path);
    if (letter == 'o' && digits_fit(rest, "01234567")) return whole(rest, 8, negative, mark, path);
    if (letter == 'b' && digits_fit(rest, "01")) return whole(rest, 2, negative, mark, path);
  }
  if (text[0] != '_' && digits_fit(text, "0123456789")) {
    if (text[0] == '0' && text.find_first_not_of("0_") != text.npos) return {};  // 007
    return whole(text, 10, negative, mark, path);
  }
  if (text.find_first_of(".eE") == text.npos || !real_fits(text)) return {};
  const double value = text::real(clean(text));
  return Node::real(negative ? -value : value, mark, path);
}

size_t python_escape(std::string_view text, std::string& out) {
  if (text.size() < 2) return 0;
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
  const char c = text[1];
  if (const size_t at = kLetters.find(c); at != kLetters.npos) {
    out += kMeant[at];
    return 2;
  }
  if (c == '\n') return 2;  // a line goes on
  if (c == 'x') return append_code_point(text.substr(2, 2), 4, out);
  if (c == 'u') return append_code_point(text.substr(2, 4), 6, out);
  if (c == 'U') return append_code_point(text.substr(2, 8), 10, out);
  if (c == 'N') return 0;
  if (c >= '0' && c <= '7') {
    size_t used = 2;
    int code = c - '0';
    for (; used < 4 && used < text.size() && text[used] >= '0' && text[used] <= '7'; ++used)
      code = code * 8 + (text[used] - '0');
    char hex[8];
    const auto end = std::to_chars(hex, hex + 8, code, 16).ptr;
    const std::string_view digits(hex, end - hex);
    return append_code_point(digits, digits.size() + 2, out) == 0 ? 0 : used;
  }
  out += text.substr(0, 2);
  return 2;
}

}  // namespace heddle::config
