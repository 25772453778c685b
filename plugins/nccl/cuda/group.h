// The group of an axis on GPUs: NCCL for their tensors, the host's group for the CPU's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/line.h"
#include "cuda/overseer.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {

// Collectives go over one line. A send and a receive go over a line for their direction between their two
// ranks, so that opposite transfers never wait for each other (Megatron's own pairs; core's schedules give
// every pair one order of transfers). Lines are made at the first use, which all their ranks come to. Sums
// follow NCCL's algorithm, in the dtype of the tensors: not in rank order, and the same again on the same
// machines.
class Group : public mesh::CheckedCommunicator {
 public:
  // ranks: global. host: the same group on the CPU; it carries the ids by which lines meet.
  Group(std::string name, int rank, std::vector<int> ranks, std::unique_ptr<Communicator> host, int device,
        std::shared_ptr<Overseer> overseer);
  ~Group() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  std::unique_ptr<Work> post_on_host(const mesh::Call& call);
  std::shared_ptr<Event> enqueue(const mesh::Call& call);
  Line& collective_line();
  Line& direct_line(int source, int target);
  Line& add(const ncclUniqueId& id, int rank, int size, std::unique_ptr<Line>& place,
            std::vector<int> members);

  const std::vector<int> ranks_;
  const std::unique_ptr<Communicator> host_;
  const int device_;
  const std::shared_ptr<Overseer> overseer_;
  std::unique_ptr<Line> collectives_;
  std::map<std::pair<int, int>, std::unique_ptr<Line>> transfers_;  // by source and target
};

}  // namespace heddle::nccl
