// Counts the brackets of a JSON text that are outside strings.
#include "core/base/nesting.h"

namespace heddle::text {

bool nests_deeper(std::string_view json, int most) {
  int depth = 0;
  bool inside = false;  // a string
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (inside) {
      if (c == '\\') ++i;
      inside = c != '"';
    } else if (c == '"') {
      inside = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace heddle::text
