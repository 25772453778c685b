// The dry world: any rank of a world of any size, alone, on meta tensors; nothing is sent, everything is
// recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// One recorded collective. bytes: this rank's tensor (the whole one of an all_gather and a reduce_scatter,
// else the input).
struct DryEntry {
  mesh::Operation operation;
  int64_t bytes;
  std::string group;
  int group_size;
  bool operator==(const DryEntry&) const = default;
};

using DryLog = std::vector<DryEntry>;

// Takes tensors of any device and leaves them untouched; its Works are done.
class HEDDLE_API DryCommunicator : public mesh::CheckedCommunicator {
 public:
  DryCommunicator(std::string name, int rank, int size, std::shared_ptr<DryLog> entries)
      : CheckedCommunicator(std::move(name), rank, size), entries_(std::move(entries)) {}
  ~DryCommunicator() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  std::shared_ptr<DryLog> entries_;
};

class HEDDLE_API DryRendezvous : public Rendezvous {
 public:
  // local_world_size: the ranks of one machine, which holds consecutive ranks.
  DryRendezvous(int rank, int world_size, int local_world_size = 8, Log log = {});
  ~DryRendezvous() override;
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_rank() const override { return rank_ % local_world_size_; }
  int local_world_size() const override { return local_world_size_; }
  const Log& log() const override { return log_; }
  // The other ranks are assumed to give this rank's text.
  std::string hold_meeting(const std::string& key, const std::string& text, const Answer& answer) override;
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;

  const DryLog& entries() const { return *entries_; }  // of all groups, in the order of the calls

 private:
  int rank_, world_size_, local_world_size_;
  Log log_;
  std::shared_ptr<DryLog> entries_ = std::make_shared<DryLog>();
};

}  // namespace heddle
