// Small trainings, on the CPU or on simulated GPUs.
#pragma once

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Another strategy over those axes.
inline Training under(const std::string& strategy, const std::string& section, std::vector<Axis> axes,
                      Training run = small()) {
  run.strategy = strategy;
  run.section = section;
  run.axes = std::move(axes);
  return run;
}

// Rows are packed otherwise each; some are one document.
inline void pack(Batch& batch, int) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  std::vector<int> offsets;
  for (int64_t row = 0; row < rows; ++row) {
    const int begin = static_cast<int>(row * length);
    offsets.push_back(begin);
    if (row % 3 != 2) offsets.push_back(begin + 2 + static_cast<int>(row % 2));
    if (row % 3 == 0) offsets.push_back(begin + static_cast<int>(length) - 1);
  }
  offsets.push_back(static_cast<int>(rows * length));
  batch.documents = at::tensor(offsets, at::kInt);
}

// The same numbers as the CPU's, without a race, in every order of the work.
inline void expect_equal_on_gpus(const Training& run, const Outcome& want) {
  using simulated::Machine;
  using simulated::Policy;
  constexpr std::pair<Policy, uint64_t> kOrders[] = {
      {Policy::at_once, 0}, {Policy::late, 0}, {Policy::random, 1}, {Policy::random, 2}, {Policy::random, 3}};
  for (const auto& [policy, seed] : kOrders) {
    SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)) + ", seed " + std::to_string(seed));
    Machine::get().begin(policy, seed);
    expect_close(train(on_gpus(run)), want);
    EXPECT_THAT(Machine::get().reports(), ::testing::IsEmpty());
    EXPECT_GT(Machine::get().counts().launches, 100);
  }
}

inline void expect_equal_on_gpus(const Training& run) {
  expect_equal_on_gpus(run, train(run));
}

}  // namespace heddle::tests
