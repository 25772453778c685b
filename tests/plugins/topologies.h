// A training on other ranks, described by one line, and its comparison with one rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugins/small_models.h"

namespace heddle::tests {

// Fields of strategies and of tensor parallelism.
inline const std::string kFloat = "mp_policy: {param_dtype: float32, reduce_dtype: float32}\n";
inline const std::string kBfloat16 = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
inline const std::string kSequence = "sequence_parallel: true";
inline const std::string kOverlapped = "{sequence_parallel: true, enable_async_tensor_parallel: true}";

// The mesh of fsdp2.
inline std::vector<Axis> shards(int ranks, int replicas = 1) {
  return {{"pp", 1}, {"dp_replicate", replicas}, {"dp_shard", ranks}, {"cp", 1}, {"tp", 1}};
}

// "fsdp2(reshard_after_forward: true) dp4 replicas2 tp2(sequence) pp2(1f1b)": the strategy and words, each
// with a number and with fields in parentheses, if any. fsdp2 computes in fp32 unless its fields say
// otherwise.
//
//   dp4, replicas2   ranks of data, which hold so many copies of what is sharded
//   tp2(fields)      `sequence` and `overlapped` stand for the fields kSequence and kOverlapped
//   cp2(method)
//   ep2(block)       `alltoall` and `allgather` stand for dispatchers; etp2 beside it
//   pp2(schedule)    rows1: sequences of a microbatch, 3 by default
//   calls3           microbatches of a rank, calls of the schedule in a pipeline; by default the
//                    microbatches of one rank are dealt to the ranks, and a pipeline has one call
//   full, selective  activation checkpointing
Training on(Training run, const std::string& line);

// Returns all lines that result from alternatives "[a|b]".
std::vector<std::string> alternatives(const std::string& line);

using Comparison = std::function<void(const Outcome& got, const Outcome& want)>;

// Checks that the run on each of the lines, with their alternatives, equals the run as it is.
void expect_equal_on(
    const Training& one, const std::vector<std::string>& lines,
    const Comparison& compare = [](const Outcome& got, const Outcome& want) {
      expect_close(got, want);  // overloaded name
    });

// Losses agree to 1e-2 and norms to 5e-2: equal computations with bfloat16 rounding in another order.
void expect_rounded_alike(const Outcome& got, const Outcome& want);

// Checks that two runs give equal bits.
void expect_same_bits_twice(const Training& run);

}  // namespace heddle::tests
