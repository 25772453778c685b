// Which modules get an adapter: the rules of NeMo AutoModel's ModuleMatcher.
#pragma once

#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "config.h"

namespace heddle::lora {

// `*` that follows no dot is any characters, and so is `.*`; the rest is a regular expression (ECMAScript)
// of the whole path. The text of the pattern itself matches too.
class Pattern {
 public:
  // Throws Error{config} at `where` for what is no regular expression.
  Pattern(std::string text, const std::string& where);
  const std::string& text() const { return text_; }
  bool matches(const std::string& path) const { return path == text_ || std::regex_match(path, regex_); }

 private:
  std::string text_;
  std::regex regex_;
};

class Matcher {
 public:
  Matcher(const Config& config, const std::string& where);

  // Of a linear layer; `matches`: whether a pattern is of it.
  bool takes_linear(const std::function<bool(const Pattern&)>& matches) const;
  // Of experts, which target_modules alone name.
  bool takes_experts(const std::string& path) const;
  // No field says what to adapt.
  bool is_default() const { return is_default_; }
  const std::vector<Pattern>& targets() const { return targets_; }
  const std::vector<Pattern>& excluded() const { return excluded_; }

 private:
  bool all_linear_, is_default_;
  std::vector<Pattern> targets_, excluded_;
};

}  // namespace heddle::lora
