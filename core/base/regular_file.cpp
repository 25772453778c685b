// The kind of file at a path, and its first bytes.
#include "core/base/regular_file.h"

#include <fstream>
#include <string>
#include <system_error>

namespace heddle {

void refuse_irregular(const std::filesystem::path& path, ErrorCode code) {
  using std::filesystem::file_type;
  const auto refuse = [&](const std::string& kind, const std::string& hint = "") {
    throw Error(code, path.string(), "is a " + kind + ", but must be a regular file", hint);
  };
  std::error_code ignored;
  switch (std::filesystem::status(path, ignored).type()) {
    case file_type::directory:
      return refuse("directory", "name a file in it");
    case file_type::fifo:
      return refuse("FIFO", "write its data to a file, and name that file");
    case file_type::socket:
      return refuse("socket");
    case file_type::block:
    case file_type::character:
      return refuse("device");
    default:
      return;
  }
}

std::string read_beginning(const std::filesystem::path& file, size_t bytes) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string out(bytes, '\0');
  in.read(out.data(), static_cast<std::streamsize>(bytes));
  out.resize(static_cast<size_t>(in.gcount()));
  return out;
}

}  // namespace heddle
