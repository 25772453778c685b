// One rank's units under fully sharded data parallelism: the sharding engine, with units in mixed precision.
#pragma once

#include <memory>
#include <optional>

#include "heddle/model/autocast.h"
#include "heddle/sharding/stage.h"
#include "model.h"

namespace heddle::fsdp2 {

// FSDP2's mixed precision: dtypes of whole parameters, of gradients in sums, and of what units return.
struct Precision {
  std::optional<at::ScalarType> parameters, reduce, outputs;
  bool cast_inputs = false;
};

struct Options {
  Precision precision;
  std::optional<at::ScalarType> autocast;     // the dtype of products and attention; empty: no autocast
  std::optional<bool> reshard_after_forward;  // empty: every unit but the last
  bool defer_reduction = true;                // reduce once a step, not once a microbatch
  Ahead ahead;                                // gathers before the unit that runs
};

// One data-parallel rank, not sharded: no gather, no hook, no copy if the dtypes agree.
std::unique_ptr<ParallelStage> make_local_stage(sharding::Model model, const Options& options);

// Several ranks.
std::unique_ptr<ParallelStage> make_sharded_stage(sharding::Model model, const Options& options,
                                                  const DeviceMesh& mesh, const sharding::Groups& groups);

// The dtypes in which a host runs a unit.
UnitPrecision of_host(const Precision& precision);

// Runs one unit with its inputs and outputs cast as the precision says.
Tensors run_cast(Unit& unit, Tensors inputs, const Batch& batch, const Precision& precision);

}  // namespace heddle::fsdp2
