// Recognises the format of a text that is not YAML.
#pragma once

#include <string>

namespace heddle::config {

// "this looks like TOML; ..." or "this looks like JSON; ...", for the hint of an error; else empty.
std::string other_format(const std::string& text);

}  // namespace heddle::config
