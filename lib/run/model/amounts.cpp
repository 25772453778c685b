// Large numbers for a person.
#include "lib/run/model/amounts.h"

#include <cstdio>

namespace heddle {
namespace {

std::string counted(double value, const char* const (&units)[4], double base) {
  int unit = 0;
  while (value >= base && unit < 3) value /= base, ++unit;
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
  return text;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  return counted(static_cast<double>(bytes), {" B", " KiB", " MiB", " GiB"}, 1024);
}

std::string count_text(int64_t count) {
  return counted(static_cast<double>(count), {"", " K", " M", " G"}, 1000);
}

}  // namespace heddle
