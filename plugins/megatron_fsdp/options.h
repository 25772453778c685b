// One set of options for both strategies: buffers, reductions and the stage.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"

namespace heddle::megatron_fsdp {

// What is split over the ranks of the shard group (ZeRO 1, 2, 3: each with those before it), and whether the
// optimizer's part is split over the replicas as well.
struct Split {
  bool optimizer = false, gradients = false, parameters = false, outer = false;
  bool operator==(const Split&) const = default;
};

enum class Averaging { none, before_the_sum, in_the_collective };

// Two alternating buffers for whole tensors: for the largest set of equal units, or for all units.
enum class Buffering { from_the_allocator, two_for_alike_units, two_for_all_units };

struct Options {
  std::string name = "megatron_fsdp";  // of the strategy, in messages
  Split split;

  // Buckets. By unit: rows stay whole, and units are gathered and freed by themselves. Else Megatron's flat
  // buffers.
  bool by_unit = true;
  std::optional<std::vector<std::string>> unit_modules;  // empty: the model's blocks
  bool bucket_for_each_parameter = false;
  int64_t bucket_elements = 0;  // of flat buffers; 0: one bucket
  std::optional<int64_t> bucket_count;
  Padding padding = Padding::none;

  // Dtypes; empty: the parameters'.
  std::optional<at::ScalarType> main_parameters, main_gradients, wire;
  bool wide_gradients = false;             // float32 where a parameter's dtype is lower
  bool cast_gradients = false;             // final gradients have the dtype of the main parameters
  std::vector<std::string> wide_patterns;  // parameters whose gradients autograd adds up in float32

  // Reductions.
  Averaging averaging = Averaging::before_the_sum;
  bool average_wide_in_collective = false;  // gradients that are not bfloat16 are divided by the collective
  bool sum_in_float32 = false;              // an all-to-all, then sums on this rank
  bool overlap_reduce = true;

  // Gathers.
  bool overlap_gather = true;
  bool gather_all_after_update = false, gather_first_after_update = false;
  std::optional<int64_t> elements_in_flight;  // of reductions; of gathers half of it
  Buffering buffering = Buffering::from_the_allocator;
  bool keep_outliers = false;  // a buffer of its own for a unit that fits neither of the two

  // Checks of gradients before they are summed.
  bool check_buckets = false, check_large = false, check_parameters = false;

  bool weights_last = false;  // a backward computes all gradients of inputs before those of weights
};

}  // namespace heddle::megatron_fsdp
