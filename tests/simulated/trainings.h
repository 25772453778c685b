// Small trainings on the CPU or on simulated GPUs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/simulated/communicator.h"
#include "lib/simulated/current.h"
#include "lib/simulated/device_ops.h"
#include "plugins/topologies.h"
#include "plugins/training_data.h"

namespace heddle::tests {

inline Training on_gpus(Training run) {
  run.on_device = [](Rendezvous& host) -> std::unique_ptr<Rendezvous> {
    simulated::set_current_device(host.rank());
    simulated::offer_device_ops();
    return std::make_unique<simulated::DeviceRendezvous>(host, host.rank());
  };
  return run;
}

inline Training small(int layers = 2) {
  Training run = four_heads("llama", layers);
  run.steps = 3;
  run.microbatches = 2;
  return run;
}

using OnGpus = Training (*)(Training);

// Checks that every execution order gives `want` without a race. device: puts the run on GPUs.
inline void expect_equal_on_gpus(const Training& run, const Outcome& want, OnGpus device = on_gpus) {
  using simulated::Machine;
  using simulated::Policy;
  constexpr std::pair<Policy, uint64_t> kOrders[] = {
      {Policy::at_once, 0}, {Policy::late, 0}, {Policy::random, 1}, {Policy::random, 2}, {Policy::random, 3}};
  for (const auto& [policy, seed] : kOrders) {
    SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)) + ", seed " + std::to_string(seed));
    Machine::get().begin(policy, seed);
    expect_close(train(device(run)), want);
    EXPECT_THAT(Machine::get().reports(), ::testing::IsEmpty());
    EXPECT_GT(Machine::get().counts().launches, 100);
  }
}

inline void expect_equal_on_gpus(const Training& run, OnGpus device = on_gpus) {
  expect_equal_on_gpus(run, train(run), device);
}

// Checks the run on every alternative of every line.
inline void expect_equal_on_gpus(const Training& run, const std::vector<std::string>& lines,
                                 OnGpus device = on_gpus) {
  for (const std::string& line : lines)
    for (const std::string& each : alternatives(line)) {
      SCOPED_TRACE(each);
      expect_equal_on_gpus(on(run, each), device);
    }
}

}  // namespace heddle::tests
