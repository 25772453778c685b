// A small reader of Python literals: numbers, strings, None, True, False, lists, tuples, sets and dicts.
#include <array>
#include <cmath>
#include <cstdlib>

#include "core/config/python_number.h"
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

}  // namespace heddle::config
