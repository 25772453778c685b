// Stage of fully sharded data parallelism: the sharding engine, with units in mixed precision.
#pragma once

#include <memory>
#include <optional>

#include "heddle/model/autocast.h"
#include "heddle/sharding/stage.h"
#include "model.h"

namespace heddle::fsdp2 {

// FSDP2's mixed precision: the dtypes of whole parameters, of gradient reduction, and of units' outputs.
struct Precision {
  std::optional<at::ScalarType> parameters, reduce, outputs;
  bool cast_inputs = false;
};

struct Options {
  Precision precision;
  std::optional<at::ScalarType>
      autocast;  // autocast dtype of linear layers and attention; empty: no autocast
  std::optional<bool> reshard_after_forward;  // empty: every unit but the last
  bool defer_reduction = true;                // reduce once per step, not once per microbatch
  Ahead ahead;                                // prefetch depths
};

// Stage of one data-parallel rank without sharding: no gather, no hook, and no copy if the dtypes agree.
std::unique_ptr<ParallelStage> make_local_stage(sharding::Model model, const Options& options);

// Stage of several ranks.
std::unique_ptr<ParallelStage> make_sharded_stage(sharding::Model model, const Options& options,
                                                  const DeviceMesh& mesh, const sharding::Groups& groups);

// Dtypes in which a host runs a unit.
UnitPrecision of_host(const Precision& precision);

// Runs one unit with its inputs and outputs cast to the dtypes of `precision`.
Tensors run_cast(Unit& unit, Tensors inputs, const Batch& batch, const Precision& precision);

}  // namespace heddle::fsdp2
