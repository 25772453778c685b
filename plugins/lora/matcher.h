// Selection of modules for adapters by the rules of NeMo AutoModel's ModuleMatcher.
#pragma once

#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "config.h"

namespace heddle::lora {

// Pattern of module paths. `*` that does not follow a dot matches any characters, as `.*` does. The rest is a
// regular expression (ECMAScript) of the whole path. The literal text of the pattern matches too.
class Pattern {
 public:
  // Throws Error{config} at `where` if `text` is not a regular expression.
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

  // Returns whether a linear layer gets an adapter. `matches`: whether a pattern matches the layer.
  bool takes_linear(const std::function<bool(const Pattern&)>& matches) const;
  // Returns whether experts get adapters. Only target_modules can select experts.
  bool takes_experts(const std::string& path) const;
  // Returns whether no field selects modules.
  bool is_default() const { return is_default_; }
  const std::vector<Pattern>& targets() const { return targets_; }
  const std::vector<Pattern>& excluded() const { return excluded_; }

 private:
  bool all_linear_, is_default_;
  std::vector<Pattern> targets_, excluded_;
};

}  // namespace heddle::lora
