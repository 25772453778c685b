// Checks the headers of nanoGPT's, AutoModel's and raw token files, and Megatron's index.
#include "lib/data/tokens/token_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"

namespace heddle {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& what,
                              const std::string& hint) {
  throw Error(ErrorCode::input, file.string(), what, hint);
}

// Checks that the tokens fill the file exactly.
TokenHeader checked(const std::filesystem::path& file, TokenHeader header, size_t bytes) {
  const size_t wanted = header.offset + static_cast<size_t>(header.tokens) * width_of(header.type);
  const std::string said = "the header says " + std::to_string(header.tokens) + " tokens of " +
                           std::to_string(width_of(header.type)) + " bytes, so " + std::to_string(wanted) +
                           " bytes in all; the file has " + std::to_string(bytes);
  if (bytes < wanted) refuse_file(file, "the file is truncated: " + said, "copy or make the file again");
  if (bytes > wanted) refuse_file(file, "the file has extra bytes: " + said, "copy or make the file again");
  return header;
}

TokenHeader bare_header(const std::filesystem::path& file, size_t bytes, TokenType type) {
  const size_t width = width_of(type);
  if (bytes % width != 0)
    refuse_file(file,
                "the file has " + std::to_string(bytes) + " bytes, which is not a multiple of the " +
                    std::to_string(width) + " bytes of a token",
                "check that dataset.dtype is the type of the file's tokens");
  return {type, 0, static_cast<int64_t>(bytes / width)};
}

// Magic, version, number of tokens, bytes per token, heddle's mark.
using HeaderBegin = std::array<int32_t, 5>;

HeaderBegin header_begin(const std::filesystem::path& file) {
  HeaderBegin words{};
  const std::string bytes = read_beginning(file, sizeof(words));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

bool has_known_magic(int32_t first) {
  return first == kNanogptMagic || first == kAutomodelMagic;
}

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the terminating zero
const std::map<int, TokenType> kIndexTypes = {{1, TokenType::uint8}, {2, TokenType::int8},
                                              {3, TokenType::int16}, {4, TokenType::int32},
                                              {5, TokenType::int64}, {8, TokenType::uint16}};

// Consumes values from the front of the file and detects its end.
class Reader {
 public:
  Reader(const std::filesystem::path& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size())
      throw Error(ErrorCode::input, file_.string(),
                  "the index is truncated: " + std::to_string(count) +
                      " more bytes should follow, there are " + std::to_string(bytes_.size()),
                  "copy or make it again");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  template <class T>
  T value() {
    T out;
    std::memcpy(&out, take(sizeof(T)).data(), sizeof(T));
    return out;
  }

 private:
  const std::filesystem::path& file_;
  std::span<const std::byte> bytes_;
};

[[noreturn]] void refuse_index(const std::filesystem::path& file, const std::string& what) {
  throw Error(ErrorCode::input, file.string(), what);
}

template <class T>
T at(std::span<const std::byte> array, size_t i) {
  T out;
  std::memcpy(&out, array.data() + i * sizeof(T), sizeof(T));
  return out;
}

}  // namespace

bool is_token_file(const std::filesystem::path& file) {
  return has_known_magic(header_begin(file)[0]);
}

// Whether the file is unfinished: the number of tokens is written last.
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
    refuse_file(file, "is empty: it contains no token", "make a token file from texts with heddle data");
  HeaderBegin words{};
  std::memcpy(words.data(), bytes.data(), std::min(bytes.size(), sizeof(words)));
  const bool known = has_known_magic(words[0]);
  if (!known && bare) return bare_header(file, bytes.size(), *bare);
  if (!known)
    refuse_file(file,
                "not a token file: it begins with the number " + std::to_string(words[0]) + ", not with " +
                    std::to_string(kNanogptMagic) + " (nanoGPT) or " + std::to_string(kAutomodelMagic) +
                    " (AutoModel)",
                "for a file of integers without a header set dataset.dtype; for a text use heddle data");
  const size_t header_bytes = kHeaderWords * sizeof(int32_t);
  if (bytes.size() < header_bytes)
    refuse_file(file,
                "the file is truncated: it has " + std::to_string(bytes.size()) +
                    " bytes, but its header alone has " + std::to_string(header_bytes),
                "copy or make the file again");
  if (words[1] != 1)
    refuse_file(file, "version " + std::to_string(words[1]) + " of the format; 1 is known", "");
  TokenHeader header{TokenType::uint16, header_bytes, static_cast<uint32_t>(words[2])};
  header.bytes = words[4] == kBytesMark;
  if (words[0] == kAutomodelMagic) {
    if (words[3] != 2 && words[3] != 4)
      refuse_file(
          file, "the header says " + std::to_string(words[3]) + " bytes per token, but must say 2 or 4", "");
    if (words[3] == 4) header.type = TokenType::uint32;
  }
  return checked(file, header, bytes.size());
}

TokenHeader read_megatron_index(const std::filesystem::path& index, size_t bytes,
                                std::vector<int64_t>* lengths) {
  const MappedFile file(index);
  Reader reader(index, file.bytes());
  if (std::memcmp(reader.take(9).data(), kMagic, 9) != 0)
    refuse_index(index, "not a Megatron index: its magic is not MMIDIDX");
  if (const auto version = reader.value<uint64_t>(); version != 1)
    refuse_index(index, "version " + std::to_string(version) + " of the format; 1 is known");
  const int code = reader.value<uint8_t>();
  if (!kIndexTypes.contains(code))
    refuse_index(index, "tokens of type code " + std::to_string(code) + "; 1 to 5 and 8 are known");
  TokenHeader header{kIndexTypes.at(code), 0, 0};
  const size_t width = width_of(header.type);
  const auto sequences = reader.value<uint64_t>();
  reader.value<uint64_t>();  // the number of documents
  if (sequences > file.bytes().size())
    refuse_index(index, "the index is truncated: it declares " + std::to_string(sequences) + " sequences");
  const auto all = reader.take(sequences * sizeof(int32_t));
  const auto places = reader.take(sequences * sizeof(int64_t));
  for (size_t i = 0; i < sequences; ++i) {
    const int32_t length = at<int32_t>(all, i);
    if (length < 0 || at<int64_t>(places, i) != header.tokens * static_cast<int64_t>(width))
      refuse_index(index, "sequence " + std::to_string(i) + " does not follow the one before it");
    header.tokens += length;
    if (lengths != nullptr) lengths->push_back(length);
  }
  if (static_cast<size_t>(header.tokens) * width != bytes)
    refuse_index(index, "the index says " + std::to_string(header.tokens) + " tokens of " +
                            std::to_string(width) + " bytes; the .bin next to it has " +
                            std::to_string(bytes) + " bytes");
  return header;
}

}  // namespace heddle
