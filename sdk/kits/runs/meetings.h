// Ranks that wait for each other in the first transfer of a pair, and waits that cannot end.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace heddle::kits {

// One wait: rank `self` for rank `peer`, both global. key: the group and direction, the same on both sides.
// what: "receive from rank 1 on cp".
struct Meeting {
  int self = 0, peer = 0;
  std::string key, what;
};

// Of all ranks of a course. NCCL makes the communicator of a pair in its first transfer, which blocks the
// host until the other side makes the same call.
class Meetings {
 public:
  // The calling rank begins to wait, unless its peer waits for it already. Throws Error{plugin_failed} where
  // ranks wait for each other in a circle, with what each of them does.
  void begin(const Meeting& meeting);

 private:
  std::mutex mutex_;
  std::map<int, Meeting> waiting_;  // by rank
};

}  // namespace heddle::kits
