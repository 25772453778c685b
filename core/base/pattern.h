// Regular expressions (ECMAScript). <regex> is included by pattern.cpp alone, because it is slow to compile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::text {

class HEDDLE_API Pattern {
 public:
  // Throws Error{config} that names `where` (file, line and key) for a wrong expression and
  // for one of more than 4096 characters.
  explicit Pattern(const std::string& expression, const std::string& where = "");

  bool found_in(const std::string& text) const;
  // The whole text and the text of each group where the expression matches the whole text, else empty.
  std::vector<std::string> match(const std::string& text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace heddle::text
