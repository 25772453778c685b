// Communicators that are as strict as a device's: what a collective writes is poisoned until its wait(), what
// it reads may not change until then, the first transfer of a pair blocks, and tags choose nothing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../watch.h"
#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"
#include "meetings.h"

namespace heddle::kits {

// Of all ranks of a course.
class HEDDLE_API WorkFaults {
 public:
  void add(const std::string& fault);
  // Throws Error{plugin_failed} with the first fault.
  void check() const;
  Meetings& meetings() { return meetings_; }

 private:
  mutable std::mutex mutex_;
  std::string first_;
  Meetings meetings_;
};

// The same rendezvous, whose groups are strict. It outlives the groups.
class HEDDLE_API LateRendezvous : public Rendezvous {
 public:
  LateRendezvous(Rendezvous& inner, std::shared_ptr<WorkFaults> faults)
      : inner_(inner), faults_(std::move(faults)) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_world_size() const override { return inner_.local_world_size(); }
  const Log& log() const override { return inner_.log(); }
  c10::Device device() const override { return inner_.device(); }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;
  void leave() override { inner_.leave(); }
  void abandon(const std::string& why) override { inner_.abandon(why); }
  std::chrono::milliseconds timeout() const override { return inner_.timeout(); }
  Error verdict(const Broken& broken) override { return inner_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    inner_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { inner_.forget(owner); }
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    const Watch::Waiting waiting;
    return inner_.hold_rendezvous(key, text, answer);
  }

 private:
  Rendezvous& inner_;
  std::shared_ptr<WorkFaults> faults_;
  std::map<std::vector<int>, int> made_;  // groups of these ranks so far
};

}  // namespace heddle::kits
