// Two mappings of a memfd.
#include "lib/simulated/memory.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::simulated {
namespace {

constexpr size_t kArenaBytes = size_t{4} << 30, kAlign = 512;

constexpr int kFrames = 32;

std::byte* guarded = nullptr;  // the device addresses, for the handler
std::string (*describe)(const void*) = nullptr;

void say(const char* text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
}

// The process ends here, so what is not async-signal-safe may fail. An address of another kind goes to the
// default action when the instruction runs again.
void on_fault(int signal_number, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (address >= guarded && address < guarded + kArenaBytes) {
    say("simulated CUDA: host code read or wrote a device address");
    if (describe != nullptr) say((" of " + describe(address)).c_str());
    say("; the host was at:\n");
    void* frames[kFrames];
    backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
    _exit(134);
  }
  signal(signal_number, SIG_DFL);
}

std::byte* map(int file, int protection) {
  void* at = mmap(nullptr, kArenaBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) throw Error(ErrorCode::internal, "simulated", "mmap failed");
  return static_cast<std::byte*>(at);
}

}  // namespace

Memory::Memory() {
  const int file = memfd_create("heddle simulated device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kArenaBytes)) != 0)
    throw Error(ErrorCode::internal, "simulated", "memfd_create failed");
  device_begin_ = map(file, PROT_NONE);
  kernel_begin_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
  guarded = device_begin_;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

void Memory::set_description(std::string (*of)(const void* address)) {
  describe = of;
}

Block& Memory::allocate(size_t bytes, int device, int stream) {
  const size_t room = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  std::vector<Block*>& waiting = free_[{stream, room}];
  Block* block = nullptr;
  if (!waiting.empty()) {
    block = waiting.back();
    waiting.pop_back();
  } else {
    if (used_ + room > kArenaBytes)
      throw Error(ErrorCode::internal, "simulated", "the simulated devices are out of memory");
    std::byte* address = device_begin_ + used_;
    std::memset(kernel_begin_ + used_, kPoison, room);
    used_ += room;
    block = &(blocks_[address] = {address, bytes, room, device, stream});
  }
  block->bytes = bytes;
  block->is_free = false;
  const auto at = static_cast<size_t>(device);
  current_[at] += static_cast<int64_t>(bytes);
  peak_[at] = std::max(peak_[at], current_[at]);
  return *block;
}

void Memory::free(Block& block) {
  block.is_free = true;
  current_[block.device] -= static_cast<int64_t>(block.bytes);
  free_[{block.stream, block.room}].push_back(&block);
}

Block* Memory::block_at(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return at < block.address + block.room ? &block : nullptr;
}

std::byte* Memory::kernel_bytes(const void* address) const {
  if (address == nullptr) return nullptr;  // of an empty tensor
  return kernel_begin_ + (static_cast<const std::byte*>(address) - device_begin_);
}

bool Memory::holds(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= device_begin_ && at < device_begin_ + kArenaBytes;
}

}  // namespace heddle::simulated
