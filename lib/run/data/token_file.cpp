// One file of tokens, mapped and its header checked.
#include "lib/run/data/token_file.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>

#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/run/data/token_header.h"
#include "lib/run/data/token_range.h"

namespace heddle {
namespace {

// A check of tokens reads at most this many blocks of a file.
constexpr int64_t kMostBlocks = 1024, kBlockBytes = int64_t{1} << 16;
static_assert(kMostBlocks * kBlockBytes == TokenFile::kMostChecked);

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
  holds_bytes_ = header.bytes;
  if (std::filesystem::exists(note_beside(file), ignored)) tokenizer_ = read_note(file, digest());
}

const std::byte* TokenFile::at(int64_t token) const {
  return file_.bytes().data() + offset_ + static_cast<size_t>(token) * width_of(type_);
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
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      blocks[i] = range_of(type_, at(parts[i].begin), parts[i].count);
  });
  TokenRange all = blocks.front();
  for (const TokenRange& block : blocks)
    all = {std::min(all.least, block.least), std::max(all.most, block.most)};
  return all;
}

std::string TokenFile::digest() const {
  constexpr size_t kBlock = 1 << 16, kBlocks = 64;
  const std::string_view all(reinterpret_cast<const char*>(at(0)),
                             static_cast<size_t>(size_) * width_of(type_));
  std::string sums = std::to_string(static_cast<int>(type_)) + ":" + std::to_string(size_);
  if (all.size() <= kBlock * kBlocks) return checkpoint::checksum(sums + checkpoint::checksum(all));
  for (size_t i = 0; i < kBlocks; ++i)
    sums += ":" + checkpoint::checksum(all.substr((all.size() - kBlock) / (kBlocks - 1) * i, kBlock));
  return checkpoint::checksum(sums);
}

bool TokenFile::has(int64_t token) const {
  std::vector<int64_t> tokens;
  const std::vector<Block> blocks = blocks_to_check();
  return std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
    tokens.resize(static_cast<size_t>(block.count));
    read(block.begin, tokens);
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  });
}

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  const std::byte* from = at(begin);
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

Error TokenFile::outside(int64_t place, int64_t token, int64_t vocabulary) const {
  return Error(ErrorCode::input, path_.string(),
               "token " + std::to_string(place) + " is " + std::to_string(token) +
                   "; the model's vocabulary has " + std::to_string(vocabulary) + " tokens",
               "check that the data was tokenized with this model's tokenizer");
}

}  // namespace heddle
