// Ranks that share one GPU, for tests: NCCL refuses two ranks of one device, so bytes go through page-locked
// memory and the host's group. Everything else of a rank is as on a GPU of its own.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"

namespace heddle::nccl {

// HEDDLE_SHARED_GPU=1: ranks may share a GPU; late: with delays before and after each collective, and
// outputs that are NaN until they arrive, so that whoever does not wait gets other numbers.
bool shares_gpus();

class StagedGroup : public mesh::CheckedCommunicator {
 public:
  StagedGroup(std::string name, int rank, int size, std::unique_ptr<Communicator> host);

 protected:
  // The host waits for what was queued before, as the bytes are read then; the result arrives in wait().
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  const std::unique_ptr<Communicator> host_;
  const bool late_;
  std::minstd_rand draw_;  // of delays
};

}  // namespace heddle::nccl
