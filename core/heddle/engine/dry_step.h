// One step of one rank of a world of any size, run alone and without memory for tensors: what the rank would
// send, and what it would hold.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/setup.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/batch.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "heddle/train/step.h"

namespace heddle::engine {

struct DryHost {
  int rank = 0, world_size = 1;
  std::function<Units(const Setup&)> make_units = {};  // with parameters on meta
  StepConfig step = {};
  // The rank's microbatches of a step, on the CPU or on meta.
  std::function<std::span<const Batch>(const DeviceMesh& mesh)> batches = {};
};

struct DryStep {
  DryLog start;            // the collectives of building the model, in the order of the calls
  DryLog step;             // those of one step
  int64_t parameters = 0;  // elements of the shards that the rank owns
  int64_t bytes = 0;       // of these, as the strategy stores them
  int peak_alive = 0;      // the most microbatches that were alive at once, over the rank's stages
};

// Goes the way of run(): the same plugins, the same strategy and schedule, one step. Whatever
// dist_env.backend says, no device is asked for; reads no file and no value. Throws what a run would throw
// before its first step.
HEDDLE_API DryStep dry_step(const Node& configuration, PluginRegistry& plugins, const DryHost& host);

}  // namespace heddle::engine
