// Counts and reports of a machine.
#include "lib/simulated/machine.h"

namespace heddle::simulated {

int64_t Machine::bytes(int device, bool peak) {
  const std::lock_guard lock(mutex_);
  return peak ? memory_.peak(device) : memory_.current(device);
}

Counts Machine::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::map<std::string, int64_t> Machine::launches_by_name() {
  const std::lock_guard lock(mutex_);
  return by_name_;
}

void Machine::count_copy(int64_t to_host, int64_t to_device) {
  const std::lock_guard lock(mutex_);
  counts_.bytes_to_host += to_host;
  counts_.bytes_to_device += to_device;
}

std::vector<std::string> Machine::reports() {
  const std::lock_guard lock(mutex_);
  return reports_;
}

std::string Machine::describe(const void* address) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const Block* block = memory_.block_at(address);
  if (block == nullptr) return "no block";
  const std::string last = races_.last_access(block->address);
  return "a block of " + std::to_string(block->bytes) + " bytes" + (last.empty() ? "" : ", which " + last);
}

void Machine::report(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (reports_.size() < kReports) reports_.push_back(text);
}

}  // namespace heddle::simulated
