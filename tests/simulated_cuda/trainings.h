// Small trainings, on the CPU or on simulated GPUs.
#pragma once

#include "plugins/tensor_training.h"
#include "simulated_cuda/communicator.h"
#include "simulated_cuda/current.h"

namespace heddle::tests {

inline Training on_gpus(Training run) {
  run.on_device = [](Rendezvous& host) -> std::unique_ptr<Rendezvous> {
    simulated::set_current_device(host.rank());
    return std::make_unique<simulated::DeviceRendezvous>(host, host.rank());
  };
  return run;
}

inline Training small() {
  Training run = four_heads();
  run.steps = 3;
  run.microbatches = 2;
  return run;
}

inline Training sharded(int ranks) {
  Training run = small();
  run.strategy = "fsdp2";
  run.section = kFloat;
  run.axes = {{"dp_replicate", 1}, {"dp_shard", ranks}, {"tp", 1}};
  return run;
}

inline Training small_on_gpus() {
  return on_gpus(small());
}

inline Training sharded_on_gpus(int ranks) {
  return on_gpus(sharded(ranks));
}

}  // namespace heddle::tests
