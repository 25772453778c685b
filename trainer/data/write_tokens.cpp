// Writes byte-level token files with nanoGPT's header.
#include "trainer/data/write_tokens.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/file_writer.h"
#include "heddle/checkpoint/publish.h"
#include "trainer/data/token_header.h"

namespace heddle {
namespace {

using Header = std::array<int32_t, kHeaderWords>;

Error cannot_write(const std::filesystem::path& file) {
  return Error(ErrorCode::io, file.string(), std::string("cannot be written: ") + std::strerror(errno),
               "is there room, and is the directory writable?");
}

// Appends the bytes of one text as uint16; returns how many.
int64_t append(std::istream& in, std::ostream& out) {
  std::array<char, 1 << 16> bytes;
  std::array<uint16_t, bytes.size()> tokens;
  int64_t count = 0;
  while (in.read(bytes.data(), bytes.size()), in.gcount() > 0) {
    const size_t got = static_cast<size_t>(in.gcount());
    for (size_t i = 0; i < got; ++i) tokens[i] = static_cast<uint8_t>(bytes[i]);
    out.write(reinterpret_cast<const char*>(tokens.data()),
              static_cast<std::streamsize>(got * sizeof(uint16_t)));
    count += static_cast<int64_t>(got);
  }
  return count;
}

int64_t append_all(std::span<const std::string> texts, std::ostream& out) {
  int64_t count = 0;
  for (const std::string& text : texts) {
    if (text == "-") {
      count += append(std::cin, out);
      continue;
    }
    std::ifstream file(text, std::ios::binary);
    if (!file || std::filesystem::is_directory(text))
      throw Error(ErrorCode::input, text,
                  std::string("cannot be read: ") + std::strerror(file ? EISDIR : errno));
    count += append(file, out);
  }
  if (count == 0)
    throw Error(ErrorCode::input, texts.empty() ? "heddle data" : texts.front(), "the text is empty");
  if (count > std::numeric_limits<int32_t>::max())
    throw Error(ErrorCode::input, texts.front(),
                std::to_string(count) + " bytes of text; the header counts to 2147483647",
                "make several files; dataset.file_pattern takes them together");
  return count;
}

}  // namespace

int64_t write_byte_tokens(std::span<const std::string> texts, const std::filesystem::path& given) {
  const std::filesystem::path out = checkpoint::replaceable(given);
  std::filesystem::path partial = out;
  partial += ".part";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  if (!file) throw cannot_write(out);
  std::error_code ignored;
  try {
    Header header{kNanogptMagic, 1, 0, 0, kBytesMark};
    file.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
    const int64_t count = append_all(texts, file);
    header[2] = static_cast<int32_t>(count);
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
    file.close();
    if (!file) throw cannot_write(out);
    checkpoint::sync(partial);
    std::filesystem::rename(partial, out);
    checkpoint::sync(out.has_parent_path() ? out.parent_path() : ".");
    return count;
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove(partial, ignored);
    throw Error(ErrorCode::io, out.string(), "cannot be written: " + error.code().message());
  } catch (...) {
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace heddle
