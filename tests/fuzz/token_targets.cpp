// Fuzzing targets for token files with and without headers, and for Megatron's file pairs.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "fuzz/files.h"
#include "fuzz/targets.h"
#include "heddle/base/error.h"
#include "lib/data/tokens/token_dataset.h"

namespace heddle::fuzz {
namespace {

void read_all(const std::filesystem::path& file, std::optional<TokenType> bare) {
  constexpr int64_t kLength = 3, kVocabulary = 50000;
  try {
    std::vector<TokenFile> one;
    one.emplace_back(file, bare);
    TokenDataset samples(std::move(one), kLength);
    samples.expect(kVocabulary);
    std::vector<int64_t> tokens(kLength), labels(kLength);
    std::vector<int32_t> documents;
    for (int64_t i = 0; i < std::min<int64_t>(samples.size(), 64); ++i) {
      samples.read(i, {tokens, labels, documents, 0});
      samples.read(samples.size() - 1 - i, {tokens, labels, documents, 0});
    }
  } catch (const Error&) {
  }
}

}  // namespace

void token_file(std::string_view bytes) {
  if (bytes.empty()) return;
  std::optional<TokenType> bare;
  if (const int type = bytes[0] & 15; type <= static_cast<int>(TokenType::int64))
    bare = static_cast<TokenType>(type);
  read_all(files().write("tokens.bin", bytes.substr(1)), bare);
}

void megatron_index(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t length = static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
  files().write("pair.idx", bytes.substr(2, length));
  read_all(files().write("pair.bin", bytes.substr(std::min(bytes.size(), 2 + length))), std::nullopt);
}

}  // namespace heddle::fuzz
