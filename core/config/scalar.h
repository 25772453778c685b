// The meaning of a YAML scalar: YAML 1.1 first, then a Python literal inside a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/config/node.h"

namespace heddle::config {

// The style of the scalar in the file.
enum class ScalarStyle { plain, quoted };

// The meaning of a plain scalar by YAML 1.1 (yes/no/on/off are booleans, 010 is 8, 1:00 is 60); nothing when
// it is a string. Follows PyYAML's resolver, which NeMo AutoModel reads its recipes with.
std::optional<Node> yaml_meaning(std::string_view text, const Mark& mark, const std::string& path);

// A string that holds a Python literal ("2", "0x2", " 2", "['cp']") is that literal, as in AutoModel's
// recipes; nothing when it is a plain string. A bytes, complex or set literal stays a string.
std::optional<Node> python_literal(std::string_view text, const Mark& mark, const std::string& path);

// ${VAR}, ${VAR,default}, ${oc.env:VAR} and $VAR from the environment. Throws Error{config} at `where` when a
// variable is not set and has no default.
std::string with_environment(const std::string& text, const std::string& where);

// The node of a string: variables first, then "none", "true", a literal, else the string itself.
Node string_meaning(const std::string& text, const Mark& mark, const std::string& path);

// The values of the keys `_target_` and `..._fn` name code: variables and literals in them are not read.
bool names_code(std::string_view key);

}  // namespace heddle::config
