// Large numbers for a person.
#include "lib/cost/amounts.h"

#include <cstdio>
#include <iterator>

namespace heddle {
namespace {

constexpr const char* kUnits[] = {"", " K", " M", " G", " T", " P", " E"};

}  // namespace

std::string count_text(int64_t count) {
  auto value = static_cast<double>(count);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f%s" : "%.2f%s", value, kUnits[unit]);
  return text;
}

}  // namespace heddle
