// The rendezvous of ranks on GPUs.
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

// The host's rendezvous, with groups of GPUs.
class DeviceRendezvous : public Rendezvous {
 public:
  DeviceRendezvous(Rendezvous& host, int device)
      : host_(host), device_(device), watchdog_(std::make_shared<Watchdog>(host, device)) {}
  const std::shared_ptr<Fault>& fault() const { return watchdog_->fault(); }
  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  int local_rank() const override { return host_.local_rank(); }
  int local_world_size() const override { return host_.local_world_size(); }
  const Log& log() const override { return host_.log(); }
  c10::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    return host_.hold_rendezvous(key, text, answer);
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
    const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    if (shares_gpus())
      return std::make_unique<StagedGroup>(name, place, static_cast<int>(ranks.size()),
                                           host_.group(name, ranks));
    return std::make_unique<Group>(name, place, std::vector<int>(ranks.begin(), ranks.end()),
                                   host_.group(name, ranks), device_, watchdog_);
  }
  void leave() override { host_.leave(); }
  void abandon(const std::string& why) override { host_.abandon(why); }
  std::chrono::milliseconds timeout() const override { return host_.timeout(); }
  Error verdict(const Broken& broken) override { return host_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    host_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { host_.forget(owner); }

 private:
  Rendezvous& host_;
  const int device_;
  const std::shared_ptr<Watchdog> watchdog_;
};

}  // namespace heddle::nccl
