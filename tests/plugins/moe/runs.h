// Helpers that tests of experts share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "plugins/toy_training.h"

namespace heddle::tests {

inline const std::string kWays = "([allgather|alltoall])";

// Capacity for all choices: nothing is dropped, and the rest are empty rows.
inline const std::string kEmptyRows = "(dispatcher: alltoall, capacity_factor: 8.0, pad_to_capacity: true)";

// Compares outcomes without dropped choices, which one rank without a capacity does not report.
inline void expect_close_without_drops(Outcome got, const Outcome& want) {
  for (const char* name : {"moe/dropped_choices", "moe/dropped_fraction"}) {
    EXPECT_TRUE(got.sides.contains(name)) << name;
    for (const double value : got.sides[name]) EXPECT_EQ(value, 0) << name;
    got.sides.erase(name);
  }
  expect_close(got, want);
}

}  // namespace heddle::tests
