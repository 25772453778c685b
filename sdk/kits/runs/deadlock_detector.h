// Detection of deadlocks between ranks that wait for each other in the first transfer of a pair.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace heddle::kits {

// A wait of rank `self` for rank `peer`, both global. key: the group and the direction, equal on both ranks.
// what: "receive from rank 1 on cp".
struct TransferWait {
  int self = 0, peer = 0;
  std::string key, what;
};

// Detects deadlocks between the ranks of a training run. NCCL creates the communicator of a pair in its first
// transfer, which blocks the host until the other rank makes the same call.
class DeadlockDetector {
 public:
  // Called when a rank begins to wait. If its peer already waits for it, both continue. Throws
  // Error{plugin_failed} with the call of each rank if ranks wait for each other in a cycle.
  void begin(const TransferWait& wait);

 private:
  std::mutex mutex_;
  std::map<int, TransferWait> waiting_;  // by rank
};

}  // namespace heddle::kits
