// The C library's reading, with the locale "C".
#include "core/base/real.h"

#include <locale.h>
#include <stdlib.h>

namespace heddle::text {

double real(const std::string& text) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(text.c_str(), nullptr, plain);
}

}  // namespace heddle::text
