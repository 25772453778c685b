// Parses frames of backtrace_symbols_fd: "FILE(SYMBOL+0x1c) [0x7f...]".
#include "trainer/cli/plugins/kept_errors.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "heddle/base/error.h"

namespace heddle::cli {
namespace {

// Demangles a symbol; returns it unchanged if it is not a C++ symbol.
std::string readable(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> out(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && out ? std::string(out.get()) : symbol;
}

// Converts "/a/libx.so(_ZN1a1bEv+0x1c) [0x7f]" to "libx.so(a::b()+0x1c)".
std::string frame_text(const std::string& line) {
  const size_t open = line.find('('), plus = line.find('+', open), close = line.find(')', open);
  if (open == line.npos || close == line.npos || plus == line.npos || plus > close) return line;
  const std::string file = std::filesystem::path(line.substr(0, open)).filename().string();
  return file + "(" + readable(line.substr(open + 1, plus - open - 1)) + line.substr(plus, close - plus + 1);
}

}  // namespace

KeptErrors::KeptErrors() : file_(memfd_create("heddle plugins check", MFD_CLOEXEC)) {
  if (file_ < 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
}

KeptErrors::~KeptErrors() {
  close(file_);
}

void KeptErrors::begin_child() const {
  dup2(file_, STDERR_FILENO);
}

std::string KeptErrors::text() const {
  std::string out;
  char bytes[4096];
  for (ssize_t count = 0;
       (count = pread(file_, bytes, sizeof(bytes), static_cast<off_t>(out.size()))) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    out.append(bytes, static_cast<size_t>(count));
  }
  return out;
}

std::string last_words(const std::string& text, const std::filesystem::path& plugin) {
  std::istringstream lines(text);
  std::string last, frame;
  bool is_own = false;  // the frame is in the plugin
  for (std::string line; std::getline(lines, line);) {
    if (line.find(") [0x") == line.npos && line.find(")[0x") == line.npos) {
      last = line, frame.clear(), is_own = false;
      continue;
    }
    const bool own = line.find("/" + plugin.filename().string() + "(") != line.npos;
    if (frame.empty() || (own && !is_own)) frame = line;
    is_own = is_own || own;
  }
  if (!last.empty() && last.back() == ':') last.pop_back();
  return last + (frame.empty() ? "" : " " + frame_text(frame));
}

}  // namespace heddle::cli
