// A memory-mapped token file with a checked header.
#include "lib/data/tokens/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "core/base/widest.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/tokens/token_header.h"

namespace heddle {
namespace {

// Maximum number of blocks of a file that a check of tokens reads.
constexpr int64_t kMostBlocks = 1024, kBlockBytes = int64_t{1} << 16;
static_assert(kMostBlocks * kBlockBytes == TokenFile::kMostChecked);

// Reads blocks of a file with read(), because a mapping would fault in whole large pages.
class BlockReader {
 public:
  explicit BlockReader(const std::filesystem::path& file)
      : file_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) refuse();
  }
  ~BlockReader() { ::close(descriptor_); }
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  std::string read(size_t offset, size_t count) const {
    std::string bytes(count, '\0');
    for (size_t done = 0; done < count;) {
      const ssize_t more =
          ::pread(descriptor_, bytes.data() + done, count - done, static_cast<off_t>(offset + done));
      if (more < 0 && errno == EINTR) continue;
      if (more == 0) errno = ENODATA;
      if (more <= 0) refuse();
      done += static_cast<size_t>(more);
    }
    return bytes;
  }

 private:
  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::input, file_.string(), std::string("cannot be read: ") + std::strerror(errno),
                "check the path, its permissions and the disk");
  }

  const std::filesystem::path& file_;
  int descriptor_;
};

template <class T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(token);
  }
}

void widen(TokenType type, const std::byte* from, std::span<int64_t> out) {
  switch (type) {
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

template <class T>
__attribute__((always_inline)) inline TokenRange range_in(const std::byte* from, int64_t count) {
  const T* tokens = reinterpret_cast<const T*>(from);
  T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::min();
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, tokens[i]);
    most = std::max(most, tokens[i]);
  }
  return {static_cast<int64_t>(least), static_cast<int64_t>(most)};
}

template <class T>
TokenRange limits_of() {
  return {static_cast<int64_t>(std::numeric_limits<T>::min()),
          static_cast<int64_t>(std::numeric_limits<T>::max())};
}

HEDDLE_INLINE TokenRange range_of_type(TokenType type, const std::byte* from, int64_t count) {
  switch (type) {
    case TokenType::uint8:
      return range_in<uint8_t>(from, count);
    case TokenType::int8:
      return range_in<int8_t>(from, count);
    case TokenType::int16:
      return range_in<int16_t>(from, count);
    case TokenType::uint16:
      return range_in<uint16_t>(from, count);
    case TokenType::int32:
      return range_in<int32_t>(from, count);
    case TokenType::uint32:
      return range_in<uint32_t>(from, count);
    case TokenType::int64:
      return range_in<int64_t>(from, count);
  }
  return {};
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
  holds_bytes_ = header.bytes;
  if (std::filesystem::exists(note_beside(file), ignored)) tokenizer_ = read_note(file, digest());
}

size_t TokenFile::byte_offset(int64_t token) const {
  return offset_ + static_cast<size_t>(token) * width_of(type_);
}

const std::byte* TokenFile::at(int64_t token) const {
  return file_.bytes().data() + byte_offset(token);
}

std::vector<TokenFile::Block> TokenFile::blocks_to_check() const {
  const int64_t each = kBlockBytes / static_cast<int64_t>(width_of(type_)), all = (size_ + each - 1) / each;
  std::vector<Block> blocks(static_cast<size_t>(std::min(all, kMostBlocks)));
  for (int64_t i = 0; i < static_cast<int64_t>(blocks.size()); ++i) {
    const int64_t begin = all <= kMostBlocks ? i * each : (size_ - each) / (kMostBlocks - 1) * i;
    blocks[static_cast<size_t>(i)] = {begin, std::min(each, size_ - begin)};
  }
  return blocks;
}

TokenRange TokenFile::range() const {
  const std::vector<Block> parts = blocks_to_check();
  std::vector<TokenRange> blocks(parts.size());
  const BlockReader reader(path_);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::string bytes = reader.read(byte_offset(parts[i].begin), bytes_in(parts[i]));
      blocks[i] = range_of(type_, reinterpret_cast<const std::byte*>(bytes.data()), parts[i].count);
    }
  });
  TokenRange all = blocks.front();
  for (const TokenRange& block : blocks)
    all = {std::min(all.least, block.least), std::max(all.most, block.most)};
  return all;
}

std::string TokenFile::digest() const {
  constexpr size_t kBlock = 1 << 16, kBlocks = 64;
  const BlockReader reader(path_);
  const size_t all = static_cast<size_t>(size_) * width_of(type_);
  std::string sums = std::to_string(static_cast<int>(type_)) + ":" + std::to_string(size_);
  if (all <= kBlock * kBlocks)
    return checkpoint::checksum(sums + checkpoint::checksum(reader.read(offset_, all)));
  for (size_t i = 0; i < kBlocks; ++i)
    sums += ":" + checkpoint::checksum(reader.read(offset_ + (all - kBlock) / (kBlocks - 1) * i, kBlock));
  return checkpoint::checksum(sums);
}

bool TokenFile::has(int64_t token) const {
  std::vector<int64_t> tokens;
  const std::vector<Block> blocks = blocks_to_check();
  const BlockReader reader(path_);
  return std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
    tokens.resize(static_cast<size_t>(block.count));
    const std::string bytes = reader.read(byte_offset(block.begin), bytes_in(block));
    widen(type_, reinterpret_cast<const std::byte*>(bytes.data()), tokens);
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  });
}

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  widen(type_, at(begin), out);
}

Error TokenFile::outside(int64_t place, int64_t token, int64_t vocabulary) const {
  return Error(ErrorCode::input, path_.string(),
               "token " + std::to_string(place) + " is " + std::to_string(token) +
                   "; the model's vocabulary has " + std::to_string(vocabulary) + " tokens",
               "check that the data was tokenized with this model's tokenizer");
}

TokenRange range_of(TokenType type, const std::byte* from, int64_t count) {
  return run_widest<range_of_type>(type, from, count);
}

TokenRange range_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return limits_of<uint8_t>();
    case TokenType::int8:
      return limits_of<int8_t>();
    case TokenType::int16:
      return limits_of<int16_t>();
    case TokenType::uint16:
      return limits_of<uint16_t>();
    case TokenType::int32:
      return limits_of<int32_t>();
    case TokenType::uint32:
      return limits_of<uint32_t>();
    case TokenType::int64:
      return limits_of<int64_t>();
  }
  return {};
}

}  // namespace heddle
