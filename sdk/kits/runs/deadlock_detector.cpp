// The last rank to join a wait cycle reports the deadlock, so no timeout is needed.
#include "deadlock_detector.h"

#include "lib/testing/whole_tensors.h"

namespace heddle::kits {

void DeadlockDetector::begin(const TransferWait& wait) {
  const std::lock_guard lock(mutex_);
  if (const auto peer = waiting_.find(wait.peer);
      peer != waiting_.end() && peer->second.peer == wait.self && peer->second.key == wait.key) {
    waiting_.erase(peer);
    return;
  }
  waiting_[wait.self] = wait;
  std::string circle;
  int rank = wait.self;
  for (size_t step = 0; step < waiting_.size(); ++step) {  // a cycle cannot be longer
    const auto at = waiting_.find(rank);
    if (at == waiting_.end()) return;
    circle +=
        (circle.empty() ? "rank " : ", rank ") + std::to_string(rank) + " in its first " + at->second.what;
    rank = at->second.peer;
    if (rank == wait.self)
      found("a deadlock of first transfers: " + circle +
            " (heddle/mesh/communicator.h: the first transfer of a pair may block until the other rank calls "
            "it)");
  }
}

}  // namespace heddle::kits
