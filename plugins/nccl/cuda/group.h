// Group of an axis on GPUs: NCCL for GPU tensors, the host's group for CPU tensors.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/nccl_communicator.h"
#include "cuda/watchdog.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {

// Collectives use one communicator. A send and its receive use one communicator per pair of ranks and
// direction, so that opposite transfers never wait for each other (as Megatron's pairs do; core's schedules
// give every pair one order of transfers). The communicator of collectives is created with the group, those
// of pairs by connect() or in their first transfer. All their ranks create them in the same order. Sums
// follow NCCL's algorithm in the dtype of the tensors: not in rank order, but reproducible on the same
// machines.
class Group : public mesh::CheckedCommunicator, public mesh::ConnectsAhead, public mesh::GathersEach {
 public:
  // ranks: global ranks. host: the same group on the CPU, which carries the ids of NCCL communicators. Waits
  // for the other ranks. Throws Error{mesh | timeout | rank_lost}.
  Group(std::string name, int rank, std::vector<int> ranks, std::unique_ptr<Communicator> host, int device,
        std::shared_ptr<Watchdog> watchdog);
  ~Group() override;
  void connect(std::span<const mesh::TransferPair> transfers) override;
  // Runs all gathers in one NCCL group call: one launch.
  std::unique_ptr<Work> gather_each(std::span<const mesh::GatherInto> gathers) override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  void check_place(const mesh::Call& call) const;
  std::shared_ptr<Event> enqueue(const mesh::Call& call);
  NcclCommunicator& direct_communicator(int source, int target);
  NcclCommunicator& add(const ncclUniqueId& id, int rank, int size, std::unique_ptr<NcclCommunicator>& place,
                        std::vector<int> members);

  const std::vector<int> ranks_;
  const std::unique_ptr<Communicator> host_;
  const int device_;
  const std::shared_ptr<Watchdog> watchdog_;
  std::unique_ptr<NcclCommunicator> collectives_;
  std::map<std::pair<int, int>, std::unique_ptr<NcclCommunicator>> transfers_;  // by source and target
};

}  // namespace heddle::nccl
