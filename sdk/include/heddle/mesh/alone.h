// A world of one rank: nothing is sent, every collective is a local copy.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// The group of an axis of size 1.
class HEDDLE_API AloneCommunicator : public mesh::CheckedCommunicator {
 public:
  explicit AloneCommunicator(std::string name) : CheckedCommunicator(std::move(name), 0, 1) {}
  ~AloneCommunicator() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;
};

class HEDDLE_API AloneRendezvous : public Rendezvous {
 public:
  explicit AloneRendezvous(Log log = {}) : log_(std::move(log)) {}
  ~AloneRendezvous() override;
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_world_size() const override { return 1; }
  const Log& log() const override { return log_; }
  std::string hold_meeting(const std::string&, const std::string& text, const Answer& answer) override {
    return answer({&text, 1}).front();
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;

 private:
  Log log_;
};

}  // namespace heddle
