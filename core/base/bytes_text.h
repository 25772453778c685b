// Sizes for a person.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace heddle {

// In the largest unit of which there is at least one: "512 B", "4.71 MiB", "6.00 EiB".
inline std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
  return text;
}

inline std::string bytes_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

}  // namespace heddle
