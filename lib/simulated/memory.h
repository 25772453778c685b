// The memory of simulated GPUs: device addresses that no host code can read, and the same bytes for kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace heddle::simulated {

// A block of device memory. Its address is mapped without any access.
struct Block {
  std::byte* address = nullptr;
  size_t bytes = 0;  // as given out
  size_t room = 0;   // as mapped
  int device = 0;
  int stream = 0;  // the index of the stream that was current when it was allocated
  bool is_free = false;
  std::set<int> uses = {};  // other streams whose work uses it, by record_stream
};

// One file in memory, mapped twice: device addresses fault, kernels use those of `kernel_bytes()`. Blocks are
// reused at once, the last one first, so that a use after the free meets another tensor's bytes.
class Memory {
 public:
  Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Block& allocate(size_t bytes, int device, int stream);
  void free(Block& block);

  // The block that holds a device address; null: none does.
  Block* block_at(const void* address);
  // Returns the address at which kernels find the byte of a device address.
  std::byte* kernel_bytes(const void* address) const;
  bool holds(const void* address) const;

  int64_t current(int device) const { return current_[static_cast<size_t>(device)]; }
  int64_t peak(int device) const { return peak_[static_cast<size_t>(device)]; }

  // Sets the description of a device address that a process prints before it ends because it read or wrote
  // there. Null: none.
  static void set_description(std::string (*of)(const void* address));

  static constexpr unsigned char kPoison = 0xFF;  // NaN in every type of floats
  static constexpr int kDevices = 8;

 private:
  std::byte* device_begin_ = nullptr;
  std::byte* kernel_begin_ = nullptr;
  size_t used_ = 0;
  std::map<const std::byte*, Block> blocks_;                    // by address
  std::map<std::pair<int, size_t>, std::vector<Block*>> free_;  // by stream and room
  int64_t current_[kDevices] = {}, peak_[kDevices] = {};
};

}  // namespace heddle::simulated
