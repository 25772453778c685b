// Packing and cutting.
#include "heddle/mesh/texts.h"

#include <algorithm>
#include <utility>

namespace heddle::mesh {
namespace {

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kAtOnce = 16;  // values of one question to the store: 64 MiB at most

std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string piece_key(const std::string& key, size_t piece) {
  return key + "." + std::to_string(piece);
}

}  // namespace

std::string pack(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) {
    all += std::to_string(text.size());
    all += ':';
    all += text;
  }
  return all;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < packed.size();) {
    const size_t colon = packed.find(':', at);
    const size_t length = std::stoul(packed.substr(at, colon - at));
    texts.push_back(packed.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return texts;
}

// The first piece says how many there are, and comes last.
void StoredTexts::put(const std::string& key, const std::string& text) {
  const std::string_view whole = text;
  const size_t pieces = std::max<size_t>(1, (whole.size() + kPiece - 1) / kPiece);
  for (size_t piece = 1; piece < pieces; ++piece)
    store_->set(piece_key(key, piece), bytes(whole.substr(piece * kPiece, kPiece)));
  store_->set(key, bytes(std::to_string(pieces) + ":" + text.substr(0, kPiece)));
}

std::vector<std::string> StoredTexts::get(std::span<const std::string> keys) {
  std::vector<std::string> texts;
  for (size_t first = 0; first < keys.size(); first += kAtOnce) {
    const auto some = keys.subspan(first, std::min(kAtOnce, keys.size() - first));
    const auto values = store_->multiGet({some.begin(), some.end()});
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string value(values[i].begin(), values[i].end());
      const size_t colon = value.find(':');
      std::string& text = texts.emplace_back(value.substr(colon + 1));
      const size_t pieces = std::stoul(value.substr(0, colon));
      for (size_t piece = 1; piece < pieces; ++piece) {
        const auto more = store_->get(piece_key(some[i], piece));
        text.append(more.begin(), more.end());
      }
    }
  }
  return texts;
}

void StoredTexts::forget(const std::string& key) {
  store_->deleteKey(key);
  for (size_t piece = 1; store_->deleteKey(piece_key(key, piece)); ++piece) {
  }
}

}  // namespace heddle::mesh
