// Lengths and texts in turn.
#include "core/mesh/packed.h"

#include <algorithm>
#include <charconv>

namespace heddle::mesh {

std::string pack(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) {
    all += std::to_string(text.size());
    all += ':';
    all += text;
  }
  return all;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    size_t length = 0;
    const size_t colon = std::min(packed.find(':'), packed.size());
    const auto read = std::from_chars(packed.data(), packed.data() + colon, length);
    if (read.ec != std::errc() || colon == packed.size() || packed.size() - colon - 1 < length)
      throw Error(ErrorCode::internal, "mesh", "a message of another rank is damaged");
    texts.emplace_back(packed.substr(colon + 1, length));
    packed.remove_prefix(colon + 1 + length);
  }
  return texts;
}

std::string pack(const Error& error) {
  const std::vector<std::string> parts = {std::to_string(static_cast<int>(error.code())), error.where(),
                                          error.message(), error.hint()};
  return pack(parts);
}

Error unpack_error(std::string_view packed) {
  const std::vector<std::string> parts = unpack(packed);
  return {static_cast<ErrorCode>(std::stoi(parts.at(0))), parts.at(1), parts.at(2), parts.at(3)};
}

}  // namespace heddle::mesh
