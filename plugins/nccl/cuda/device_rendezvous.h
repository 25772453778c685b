// Rendezvous of ranks on GPUs.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/group.h"
#include "cuda/staged_group.h"
#include "cuda/watchdog.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::nccl {

// The host's rendezvous, with groups for GPU tensors.
class DeviceRendezvous : public WrappedRendezvous {
 public:
  DeviceRendezvous(Rendezvous& host, int device)
      : WrappedRendezvous(host), device_(device), watchdog_(std::make_shared<Watchdog>(host, device)) {}
  const std::shared_ptr<Fault>& fault() const { return watchdog_->fault(); }
  c10::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
    if (name == "host") return inner().group(name, ranks);  // Step counts microbatches with this group
    const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    if (shares_gpus())
      return std::make_unique<StagedGroup>(name, place, static_cast<int>(ranks.size()),
                                           inner().group(name, ranks));
    return std::make_unique<Group>(name, place, std::vector<int>(ranks.begin(), ranks.end()),
                                   inner().group(name, ranks), device_, watchdog_);
  }

 private:
  const int device_;
  const std::shared_ptr<Watchdog> watchdog_;
};

}  // namespace heddle::nccl
