// Reads Megatron's NAME.idx: magic, version, type, lengths and places of the sequences in NAME.bin.
#include <cstring>
#include <map>
#include <string>

#include "heddle/base/error.h"
#include "lib/data/tokens/token_header.h"

namespace heddle {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the final zero
const std::map<int, TokenType> kIndexTypes = {{1, TokenType::uint8}, {2, TokenType::int8},
                                              {3, TokenType::int16}, {4, TokenType::int32},
                                              {5, TokenType::int64}, {8, TokenType::uint16}};

// Takes values off the front of the file and notices its end.
class Reader {
 public:
  Reader(const std::filesystem::path& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size())
      throw Error(ErrorCode::input, file_.string(),
                  "the index is cut: " + std::to_string(count) + " more bytes should follow, there are " +
                      std::to_string(bytes_.size()),
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
    refuse_index(index, "the index is cut: it says " + std::to_string(sequences) + " sequences");
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
                            std::to_string(width) + " bytes; the .bin beside it has " +
                            std::to_string(bytes) + " bytes");
  return header;
}

}  // namespace heddle
