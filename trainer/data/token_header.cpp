// Checks the headers of nanoGPT's, AutoModel's and bare token files.
#include "trainer/data/token_header.h"

#include <cstring>
#include <string>

#include "heddle/base/error.h"

namespace heddle {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what,
                         const std::string& hint) {
  throw Error(ErrorCode::input, file.string(), what, hint);
}

// The tokens must fill the file exactly.
TokenHeader checked(const std::filesystem::path& file, TokenHeader header, size_t bytes) {
  const size_t wanted = header.offset + static_cast<size_t>(header.tokens) * width_of(header.type);
  const std::string said = "the header says " + std::to_string(header.tokens) + " tokens of " +
                           std::to_string(width_of(header.type)) + " bytes, so " + std::to_string(wanted) +
                           " bytes in all; the file has " + std::to_string(bytes);
  if (bytes < wanted) refuse(file, "the file is cut: " + said, "copy or make the file again");
  if (bytes > wanted) refuse(file, "bytes are left over: " + said, "copy or make the file again");
  return header;
}

TokenHeader bare_header(const std::filesystem::path& file, size_t bytes, TokenType type) {
  const size_t width = width_of(type);
  if (bytes % width != 0)
    refuse(file,
           "the file has " + std::to_string(bytes) + " bytes, which is not a multiple of the " +
               std::to_string(width) + " bytes of a token",
           "is dataset.dtype the type that the file was written with?");
  return {type, 0, static_cast<int64_t>(bytes / width)};
}

}  // namespace

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
  int32_t words[5] = {0, 0, 0, 0, 0};  // magic, version, tokens, bytes per token, our mark
  if (!bytes.empty()) std::memcpy(words, bytes.data(), std::min(bytes.size(), sizeof(words)));
  const bool known = words[0] == kNanogptMagic || words[0] == kAutomodelMagic;
  if (!known && bare) return bare_header(file, bytes.size(), *bare);
  if (!known)
    refuse(file,
           "not a token file: it begins with the number " + std::to_string(words[0]) + ", not with " +
               std::to_string(kNanogptMagic) + " (nanoGPT) or " + std::to_string(kAutomodelMagic) +
               " (AutoModel)",
           "for a file of integers without a header give dataset.dtype, for a text use: heddle data");
  const size_t header_bytes = kHeaderWords * sizeof(int32_t);
  if (bytes.size() < header_bytes)
    refuse(file,
           "the file is cut: it has " + std::to_string(bytes.size()) + " bytes, and its header alone has " +
               std::to_string(header_bytes),
           "copy or make the file again");
  if (words[1] != 1) refuse(file, "version " + std::to_string(words[1]) + " of the format; 1 is known", "");
  TokenHeader header{TokenType::uint16, header_bytes, static_cast<uint32_t>(words[2])};
  header.bytes = words[4] == kBytesMark;
  if (words[0] == kAutomodelMagic) {
    if (words[3] != 2 && words[3] != 4)
      refuse(file, "the header says " + std::to_string(words[3]) + " bytes a token; 2 and 4 are known", "");
    if (words[3] == 4) header.type = TokenType::uint32;
  }
  return checked(file, header, bytes.size());
}

}  // namespace heddle
