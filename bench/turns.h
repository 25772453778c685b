// Ways to run one step that take turns in one run, so what else the machine does falls on all alike.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::bench {

struct Contender {
  std::string label;
  Stages stages;
  std::unique_ptr<Step> step;
  std::vector<double> milliseconds;
};

// Steps are made last: they keep the place of their stages.
inline void make_steps(std::vector<Contender>& contenders, const DeviceMesh& mesh) {
  for (Contender& one : contenders) one.step = std::make_unique<Step>(one.stages, mesh, StepConfig{});
}

// Every contender runs its step once a round; the first rounds warm up and do not count.
inline void take_turns(std::vector<Contender>& contenders, const std::vector<Batch>& batches, int rounds) {
  constexpr int kWarm = 5;
  for (int round = 0; round < rounds + kWarm; ++round) {
    for (Contender& one : contenders) {
      const auto start = std::chrono::steady_clock::now();
      one.step->run(batches, 1e-4, 0.01);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round >= kWarm) one.milliseconds.push_back(took.count());
    }
  }
}

// A table in Markdown, with the ratios to the first contender.
inline void print(std::vector<Contender>& contenders, const char* what, const char* first) {
  double first_least = 0, first_median = 0;
  std::printf("| %s | least ms | median ms | least / %s | median / %s |\n|---|--:|--:|--:|--:|\n", what,
              first, first);
  for (Contender& one : contenders) {
    std::sort(one.milliseconds.begin(), one.milliseconds.end());
    const double least = one.milliseconds.front(), median = one.milliseconds[one.milliseconds.size() / 2];
    if (first_least == 0) first_least = least, first_median = median;
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", one.label.c_str(), least, median, least / first_least,
                median / first_median);
  }
}

}  // namespace heddle::bench
