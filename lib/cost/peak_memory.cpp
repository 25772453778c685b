// Peak resident set of the kernel, minus pages of mapped files.
#include "lib/cost/peak_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace heddle {
namespace {

// Returns the KiB in a line such as "VmHWM:   151352 kB"; 0 if there is no such line.
double kib_of(std::string_view status, std::string_view key) {
  const size_t at = status.find(key);
  return at == status.npos ? 0 : std::strtod(status.data() + at + key.size(), nullptr);
}

}  // namespace

PeakMemory::PeakMemory() : status_(::open("/proc/self/status", O_RDONLY | O_CLOEXEC)) {
  // 5 resets the peak to the current resident set. If that is not permitted, the peak counts from the
  // process's start.
  const int mark = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (mark < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(mark, "5", 1);
  ::close(mark);
}

PeakMemory::~PeakMemory() {
  if (status_ >= 0) ::close(status_);
}

double PeakMemory::gib() const {
  std::array<char, 8192> text{};
  const ssize_t size = status_ < 0 ? -1 : ::pread(status_, text.data(), text.size() - 1, 0);
  if (size <= 0) return 0;
  const std::string_view status(text.data(), size);
  return (kib_of(status, "\nVmHWM:") - kib_of(status, "\nRssFile:")) / (1024 * 1024);
}

}  // namespace heddle
