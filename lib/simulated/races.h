// Finds accesses of device memory that no event orders, in whatever order the work really ran: vector clocks
// over streams, as PyTorch's CUDA sanitizer has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace heddle::simulated {

// How far each stream has come, as one stream or event knows it.
class Clock {
 public:
  uint64_t of(int stream) const {
    return static_cast<size_t>(stream) < times_.size() ? times_[static_cast<size_t>(stream)] : 0;
  }
  uint64_t tick(int stream);
  void join(const Clock& other);

 private:
  std::vector<uint64_t> times_;  // by stream
};

// Bytes [begin, end) of device memory that work reads or writes.
struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool writes = false;
  size_t bytes = 0;  // of the numbers in it, which may lie apart
};

// Who did it: "mm on stream 0 of cuda:1".
struct Place {
  std::string work;
  int stream = 0;
};

class Races {
 public:
  // Work of a stream whose clock is `now`, within a block that begins at `block`. Returns a report for the
  // first access that nothing orders before it, or "".
  std::string add(const std::byte* block, const Range& range, const Place& place, const Clock& now);
  // The newest access of a block: "aten::mm on stream 0 of cuda:1 writes"; "" for none.
  std::string last_access(const std::byte* block) const;
  void forget() { blocks_.clear(); }

 private:
  struct Access {
    Range range;
    Place place;
    uint64_t time = 0;
  };
  std::map<const std::byte*, std::vector<Access>> blocks_;  // those that later ones may race with
};

}  // namespace heddle::simulated
