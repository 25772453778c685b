// The steps of a training on ranks that are threads, and the collection of their results.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/stages.h"
#include "heddle/train/step.h"
#include "lib/testing/outcome.h"

namespace heddle::kits {

// The steps of every rank.
struct StepLoop {
  int64_t first = 0, steps = 12;  // steps first, first + 1, ..., first + steps - 1
  StepConfig config = {};         // the learning rate and decay of every step
  std::function<std::unique_ptr<IOptimizer>()> make_optimizer = {};  // empty: AdamW
  std::function<std::vector<Batch>(int64_t step)> batches = {};      // this rank's microbatches
  int64_t validate_every = 0;     // evaluates the batches after every Nth step; 0: never
  const Outcome* from = nullptr;  // initial optimizer state: averages, squares, steps
  std::function<void(Step& step, int64_t index)> after_step = {};
  // Gradient norms of two ranks may differ by this part. Parameters that all ranks of tp hold may lie at
  // another alignment on each of them, and LibTorch's products round by it.
  double norm_between_ranks = 1e-10;
};

// Numbers that all ranks of a training have computed.
struct HEDDLE_API Results {
  std::mutex mutex;
  std::string fault;  // a number that ranks report differently; empty: none
  Outcome common;     // losses, norms, validation, sides and peaks
  std::deque<WholeTensors> gradients;
  WholeTensors parameters, averages, squares, steps;
  // Returns everything, once all ranks have ended. Throws Error{plugin_failed} as WholeTensors::take, and if
  // two ranks report another loss, norm or side output.
  Outcome take();
};

// Runs the steps of one rank.
HEDDLE_API void run_steps(Stages& stages, const DeviceMesh& mesh, const StepLoop& loop, Results& results);

}  // namespace heddle::kits
