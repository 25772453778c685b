// Says of a text that is no YAML what it looks like.
#pragma once

#include <string>

namespace heddle::config {

// "this looks like TOML; ..." or "this looks like JSON; ...", for the hint of an error; else empty.
std::string other_format(const std::string& text);

}  // namespace heddle::config
