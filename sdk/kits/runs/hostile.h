// Communicators as strict as a device's: an output is poisoned until wait(), an input must not change until
// wait(), the first transfer of a pair blocks, and tags do not match sends and receives.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../watch.h"
#include "deadlock_detector.h"
#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::kits {

// The faults of all ranks of a training run.
class HEDDLE_API WorkFaults {
 public:
  void add(const std::string& fault);
  // Throws Error{plugin_failed} with the first fault.
  void check() const;
  DeadlockDetector& deadlocks() { return deadlocks_; }

 private:
  mutable std::mutex mutex_;
  std::string first_;
  DeadlockDetector deadlocks_;
};

// A rendezvous with strict groups, which it outlives.
class HEDDLE_API LateRendezvous : public WrappedRendezvous {
 public:
  LateRendezvous(Rendezvous& inner, std::shared_ptr<WorkFaults> faults)
      : WrappedRendezvous(inner), faults_(std::move(faults)) {}
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    const Watch::Waiting waiting;
    return inner().hold_rendezvous(key, text, answer);
  }

 private:
  std::shared_ptr<WorkFaults> faults_;
  std::map<std::vector<int>, int> made_;  // number of groups of these ranks so far
};

}  // namespace heddle::kits
