// Ranks that share one GPU, for tests. NCCL refuses two ranks on one device, so data goes through page-locked
// memory and the host's group. All other behavior is that of ranks with separate GPUs.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"

namespace heddle::nccl {

// HEDDLE_SHARED_GPU=1: ranks may share a GPU. late: adds delays before and after each collective, and outputs
// are NaN until they arrive, so that a missing wait changes results.
bool shares_gpus();

class StagedGroup : public mesh::CheckedCommunicator {
 public:
  StagedGroup(std::string name, int rank, int size, std::unique_ptr<Communicator> host);

 protected:
  // The host waits for work queued before the call, because the data is read at once. The result arrives in
  // wait().
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  const std::unique_ptr<Communicator> host_;
  const bool late_;
  std::minstd_rand draw_;  // for delays
};

}  // namespace heddle::nccl
