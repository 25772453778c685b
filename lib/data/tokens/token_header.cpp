// Checks the headers of nanoGPT's, AutoModel's and bare token files.
#include "lib/data/tokens/token_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"

namespace heddle {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& what,
                              const std::string& hint) {
  throw Error(ErrorCode::input, file.string(), what, hint);
}

// The tokens must fill the file exactly.
TokenHeader checked(const std::filesystem::path& file, TokenHeader header, size_t bytes) {
  const size_t wanted = header.offset + static_cast<size_t>(header.tokens) * width_of(header.type);
  const std::string said = "the header says " + std::to_string(header.tokens) + " tokens of " +
                           std::to_string(width_of(header.type)) + " bytes, so " + std::to_string(wanted) +
                           " bytes in all; the file has " + std::to_string(bytes);
  if (bytes < wanted) refuse_file(file, "the file is cut: " + said, "copy or make the file again");
  if (bytes > wanted) refuse_file(file, "bytes are left over: " + said, "copy or make the file again");
  return header;
}

TokenHeader bare_header(const std::filesystem::path& file, size_t bytes, TokenType type) {
  const size_t width = width_of(type);
  if (bytes % width != 0)
    refuse_file(file,
                "the file has " + std::to_string(bytes) + " bytes, which is not a multiple of the " +
                    std::to_string(width) + " bytes of a token",
                "is dataset.dtype the type that the file was written with?");
  return {type, 0, static_cast<int64_t>(bytes / width)};
}

// Magic, version, tokens, bytes per token, our mark.
using HeaderBegin = std::array<int32_t, 5>;

HeaderBegin header_begin(const std::filesystem::path& file) {
  HeaderBegin words{};
  const std::string bytes = beginning_of(file, sizeof(words));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

bool has_known_magic(int32_t first) {
  return first == kNanogptMagic || first == kAutomodelMagic;
}

}  // namespace

bool is_token_file(const std::filesystem::path& file) {
  return has_known_magic(header_begin(file)[0]);
}

// Its number of tokens is written last.
bool is_unfinished_token_file(const std::filesystem::path& file) {
  const HeaderBegin words = header_begin(file);
  const bool is_marked = words[4] == kBytesMark || words[4] == kTokensMark;
  return has_known_magic(words[0]) && words[1] == 1 && (is_marked || words[2] == 0);
}

size_t width_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
    case TokenType::uint32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 8;
}

TokenHeader read_token_header(const std::filesystem::path& file, std::span<const std::byte> bytes,
                              std::optional<TokenType> bare) {
  if (bytes.empty())
    refuse_file(file, "is empty: it holds no token", "heddle data makes a token file from a text");
  HeaderBegin words{};
  std::memcpy(words.data(), bytes.data(), std::min(bytes.size(), sizeof(words)));
  const bool known = has_known_magic(words[0]);
  if (!known && bare) return bare_header(file, bytes.size(), *bare);
  if (!known)
    refuse_file(file,
                "not a token file: it begins with the number " + std::to_string(words[0]) + ", not with " +
                    std::to_string(kNanogptMagic) + " (nanoGPT) or " + std::to_string(kAutomodelMagic) +
                    " (AutoModel)",
                "for a file of integers without a header give dataset.dtype, for a text use: heddle data");
  const size_t header_bytes = kHeaderWords * sizeof(int32_t);
  if (bytes.size() < header_bytes)
    refuse_file(file,
                "the file is cut: it has " + std::to_string(bytes.size()) +
                    " bytes, and its header alone has " + std::to_string(header_bytes),
                "copy or make the file again");
  if (words[1] != 1)
    refuse_file(file, "version " + std::to_string(words[1]) + " of the format; 1 is known", "");
  TokenHeader header{TokenType::uint16, header_bytes, static_cast<uint32_t>(words[2])};
  header.bytes = words[4] == kBytesMark;
  if (words[0] == kAutomodelMagic) {
    if (words[3] != 2 && words[3] != 4)
      refuse_file(file, "the header says " + std::to_string(words[3]) + " bytes a token; 2 and 4 are known",
                  "");
    if (words[3] == 4) header.type = TokenType::uint32;
  }
  return checked(file, header, bytes.size());
}

}  // namespace heddle
