// One file of tokens, mapped and its header checked.
#include "trainer/data/token_file.h"

#include <cstring>
#include <system_error>

#include "trainer/data/token_header.h"

namespace heddle {
namespace {

template <class T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(token);
  }
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& file, std::optional<TokenType> bare)
    : path_(file), file_(file) {
  std::filesystem::path index = file;
  index.replace_extension(".idx");
  std::error_code ignored;
  const bool megatron = std::filesystem::exists(index, ignored);
  const TokenHeader header = megatron ? read_megatron_index(index, file_.bytes().size())
                                      : read_token_header(file, file_.bytes(), bare);
  type_ = header.type;
  offset_ = header.offset;
  size_ = header.tokens;
  bytes_ = header.bytes;
}

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  const std::byte* from = file_.bytes().data() + offset_ + static_cast<size_t>(begin) * width_of(type_);
  switch (type_) {
    case TokenType::uint8:
      return widen<uint8_t>(from, out);
    case TokenType::int8:
      return widen<int8_t>(from, out);
    case TokenType::int16:
      return widen<int16_t>(from, out);
    case TokenType::uint16:
      return widen<uint16_t>(from, out);
    case TokenType::int32:
      return widen<int32_t>(from, out);
    case TokenType::uint32:
      return widen<uint32_t>(from, out);
    case TokenType::int64:
      return widen<int64_t>(from, out);
  }
}

}  // namespace heddle
