// The communicator of ranks that are processes of one machine: shared memory moves their bytes.
#pragma once

#include <memory>

#include "heddle/mesh/call.h"
#include "lib/transport/shm/shm_engine.h"

namespace heddle::mesh {

// n bytes on `size` ranks: every rank copies its part once into shared memory, and the others read it there;
// an all_reduce is one such exchange if it is small or between two ranks, else a sum of parts that are then
// gathered. Sums are taken in rank order. The engine outlives the communicator.
class ShmCommunicator : public CheckedCommunicator {
 public:
  ShmCommunicator(ShmGroupPlace place, ShmEngine& engine);
  ~ShmCommunicator() override;  // sends nothing; cancels calls in flight

  const std::shared_ptr<Arena>& arena() const { return engine_.arena(); }  // this rank's

 protected:
  std::unique_ptr<Work> post(Call call) override;

 private:
  ShmEngine& engine_;
  std::unique_ptr<ShmGroup> group_;
};

}  // namespace heddle::mesh
