// Messages of allocators, and memory figures of this process and the machine from Linux.
#include "heddle/base/error.h"

#include <sys/resource.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <new>
#include <string>
#include <string_view>

#include "heddle/base/text.h"

namespace heddle {
namespace {

// "VmRSS" of /proc/self/status, "MemTotal" of /proc/meminfo: kibibytes, as bytes; 0 where it is not there.
double bytes_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return 1024 * std::strtod(line.c_str() + key.size() + 1, nullptr);
  return 0;
}

std::string what_there_is() {
  std::string out = "this process holds " + bytes_text(bytes_of("/proc/self/status", "VmRSS"));
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    out += ", its address space is " + bytes_text(bytes_of("/proc/self/status", "VmSize")) + " of at most " +
           bytes_text(static_cast<double>(limit.rlim_cur)) + " (ulimit -v)";
  return out + "; the machine has " + bytes_text(bytes_of("/proc/meminfo", "MemTotal")) + ", of which " +
         bytes_text(bytes_of("/proc/meminfo", "MemAvailable")) + " are available";
}

// The number after "you tried to allocate ", from the message of the CPU's allocator.
std::optional<double> asked_of_cpu(std::string_view said) {
  constexpr std::string_view kBefore = "you tried to allocate ";
  const size_t at = said.find(kBefore);
  if (at == said.npos || said.find("CPUAllocator") == said.npos) return std::nullopt;
  uint64_t bytes = 0;
  const char* number = said.data() + at + kBefore.size();
  const auto [end, fault] = std::from_chars(number, said.data() + said.size(), bytes);
  if (fault != std::errc()) return std::nullopt;
  return static_cast<double>(bytes);
}

// "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ... of which ... is free."
std::string said_of_device(std::string_view said) {
  const size_t begin = said.find("CUDA out of memory. ");
  if (begin == said.npos) return "";
  constexpr std::string_view kLast = " is free.";
  const size_t end = said.find(kLast, begin);
  return std::string(end == said.npos ? said.substr(begin, said.find('\n', begin) - begin)
                                      : said.substr(begin, end + kLast.size() - begin));
}

}  // namespace

std::optional<Error> out_of_memory(const std::exception& thrown) {
  const std::string_view said = thrown.what();
  if (const std::string device = said_of_device(said); !device.empty())
    return Error(ErrorCode::internal, "device", device);
  if (const auto bytes = asked_of_cpu(said))
    return Error(ErrorCode::internal, "memory",
                 "cannot allocate " + bytes_text(*bytes) + " for a tensor: " + what_there_is());
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return Error(ErrorCode::internal, "memory", "an allocation failed: " + what_there_is());
  return std::nullopt;
}

}  // namespace heddle
