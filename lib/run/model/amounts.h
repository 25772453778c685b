// Large numbers for a person.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

std::string bytes_text(int64_t bytes);  // "4.71 MiB"
std::string count_text(int64_t count);  // "1.24 M"

}  // namespace heddle
