// Steps on the rows that PEFT was trained on: losses and norms are PEFT's.
#pragma once

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "heddle/train/step.h"

namespace heddle::tests {

// golden: of tests/golden/make_dora.py or make_joined.py.
inline void expect_golden_steps(Stages& stages, const DeviceMesh& mesh, const nlohmann::json& golden) {
  const int64_t batch = golden["batch"], sequence = golden["sequence"];
  const at::Tensor rows =
      at::tensor(golden["tokens"].get<std::vector<int64_t>>(), at::kLong).view({-1, batch, sequence + 1});
  StepConfig config;
  config.optimizer = {1e-2, 0.9, 0.95, 1e-8, 0.1};
  config.max_norm = 1.0;
  Step step(stages, mesh, config);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    Batch one;
    one.tokens = rows[i].narrow(1, 0, sequence).contiguous();
    one.labels = rows[i].narrow(1, 1, sequence).contiguous();
    const StepReport report = step.run(std::span(&one, 1), 1e-2, 0.1);
    const double loss = golden["loss"][i], norm = golden["grad_norm"][i];
    EXPECT_NEAR(report.loss.item<double>(), loss, 2e-5 * loss) << i;
    EXPECT_NEAR(report.grad_norm.item<double>(), norm, 2e-4 * norm) << i;
  }
}

}  // namespace heddle::tests
