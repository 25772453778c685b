// The error for what is valid but not built yet, at its place in the file.
#include <string>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"

namespace heddle::engine {
namespace {

// "a.b: why" in two.
struct Line {
  std::string key, why;
};

Line parted(const std::string& text) {
  const size_t colon = text.find(": ");
  return {text.substr(0, colon), text.substr(colon + 2)};
}

// The place of the key, or of the deepest section above it that the file has.
std::string key_place(const Node& configuration, const std::string& key) {
  const Node* deepest = &configuration;
  for (size_t begin = 0; begin < key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const Node* next = deepest->find(key.substr(begin, end - begin));
    if (next == nullptr) break;
    deepest = next;
    begin = end + 1;
  }
  return deepest->path() == key ? deepest->where() : deepest->where() + " (" + key + ")";
}

}  // namespace

void refuse_not_built(const Node& configuration, std::span<const std::string> lines) {
  Errors errors;
  for (const std::string& line : lines) {
    const Line one = parted(line);
    errors.add(Error(ErrorCode::not_built, key_place(configuration, one.key), one.why,
                     "remove the key, or set it to its default"));
  }
  errors.raise();
}

}  // namespace heddle::engine
