// Options of both strategies: buffers, reductions and the stage.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"

namespace heddle::megatron_fsdp {

// State that the ranks of the shard group split (ZeRO 1, 2, 3: each includes the previous ones), and whether
// the replicas split the optimizer's part too.
struct Split {
  bool optimizer = false, gradients = false, parameters = false, outer = false;
  bool operator==(const Split&) const = default;
};

enum class Averaging { none, before_the_sum, in_the_collective };

// Two alternating buffers for whole tensors: for the largest set of equal units, or for all units.
enum class Buffering { from_the_allocator, two_for_alike_units, two_for_all_units };

struct Options {
  std::string name = "megatron_fsdp";  // name of the strategy, for messages
  Split split;

  // Buckets. By unit: rows stay whole, and each unit is gathered and freed separately. Otherwise Megatron's
  // flat buffers.
  bool by_unit = true;
  std::optional<std::vector<std::string>> unit_modules;  // empty: the model's blocks
  bool bucket_for_each_parameter = false;
  int64_t bucket_elements = 0;  // of flat buffers; 0: one bucket
  std::optional<int64_t> bucket_count;
  Padding padding = Padding::none;

  // Dtypes. Empty: the dtype of the parameters.
  std::optional<at::ScalarType> main_parameters, main_gradients, wire;
  bool wide_gradients = false;             // accumulate in float32 if the parameter's dtype is narrower
  bool cast_gradients = false;             // cast final gradients to the dtype of the main parameters
  std::vector<std::string> wide_patterns;  // parameters whose gradients accumulate in float32

  // Reductions.
  Averaging averaging = Averaging::before_the_sum;
  bool average_wide_in_collective = false;  // the collective divides gradients that are not bfloat16
  bool sum_in_float32 = false;              // an all-to-all, then a sum on this rank
  bool overlap_reduce = true;

  // Gathers.
  bool overlap_gather = true;
  bool gather_all_after_update = false, gather_first_after_update = false;
  std::optional<int64_t> elements_in_flight;  // of reductions; half of it for gathers
  Buffering buffering = Buffering::from_the_allocator;
  bool keep_outliers = false;  // a separate buffer for a unit that fits neither of the two

  // Checks of gradients before reduction.
  bool check_buckets = false, check_large = false, check_parameters = false;

  bool weights_last = false;  // compute all input gradients before the weight gradients
};

}  // namespace heddle::megatron_fsdp
