// Large numbers for a person.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

std::string count_text(int64_t count);  // "1.24 M"

}  // namespace heddle
