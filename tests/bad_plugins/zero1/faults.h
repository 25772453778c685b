// The faults that a variant of ZeRO-1 can have. Fault::none is the correct variant.
#pragma once

namespace heddle {
class Offer;
}

namespace zero1 {

enum class Fault {
  none,
  tied_twice,            // owns a tied parameter once per slot
  unused_gets_zero,      // gives zeros as the gradient of a parameter that no rank used
  unused_not_agreed,     // drops the sum on a rank whose own gradient is undefined
  frozen_trains,         // owned shards of frozen parameters require gradients and get zeros
  foreign_replaced,      // replaces a foreign module's tensor instead of changing it in place
  empty_shard_crashes,   // reads the first element of every shard, also of empty shards
  empty_not_listed,      // omits empty shards from owned()
  owns_nothing_throws,   // throws on a rank that owns no elements
  averages,              // averages over the ranks instead of summing
  last_forgotten,        // takes gradients when the last backward is announced, before it runs
  bucket_forgotten,      // reduces only the first bucket
  order_differs,         // every second rank reduces its buckets in reverse order
  drain_ignored,         // takes gradients once as many backwards as forwards have ended
  first_hook_counts,     // takes a leaf's gradient at the first hook call in the last backward
  evaluation_counts,     // counts forwards of an evaluation as microbatches
  whole_is_part,         // hold_whole() returns the owned shards
  change_ignored,        // gathers only after its own update
  first_ranks_kept,      // sizes buckets by the world size of the first mesh in the process
  needs_hints,           // reduces in reduce_gradients(), whose call is optional
  needs_unshard,         // computes only after a call of unshard()
  gradient_is_view,      // returns gradients that are views of autograd
  offset_wrong,          // the second parameter's box begins one row late
  axes_missing,          // shards do not list the axis dp
  remainder_lost,        // drops the elements of a bucket that the rank count does not divide
  gradients_pile_up,     // does not clear the model's gradients after a step
  parts_unplaced,        // ignores how a parallelizer split the parameters
  values_of_each_rank,   // every rank keeps its own initial values instead of those of rank 0
  work_dropped,          // does not wait for its reduce-scatter
  loops_in_finish,       // one rank does not return from finish_gradients()
  last_microbatch_only,  // reduces only the gradients of the step's last microbatch
  mean_of_microbatches,  // divides the sum by the number of microbatches
  frozen_drifts,         // changes parameters that require no gradient
  stale_every_second,    // all-gathers parameters after every second update only
  sums_are_rounded,      // sums gradients in bfloat16
  values_are_rounded,    // computes with rounded parameters
  reads_before_wait,     // reads the sum before wait()
  waits_twice,           // calls wait() twice on one Work
  divisor_wrong,         // doubles the sums
  release_loses,         // release_whole() leaves zeros in the model
  axes_too_many,         // lists dp as an axis of a frozen parameter
  names_changed,         // adds a prefix to the names of shards
  extra_lost,            // passes a batch without `extra` to the units
  clips_gradients,       // clips large gradients
  owned_is_a_copy,       // owned() returns copies of the shards
  needs_change,          // needs() of strategies made later in the process lists another axis
  promises_restart,      // may_use lists post_validation, but the stage has no restart_step()
  skips_second_reduce,   // one rank reduces only in the first step
  exits_in_finish,       // exits with status 0 in finish_gradients()
  dies_in_second_step,
  throws_in_forward,
  throws_in_finish,
  throws_in_owned,
  throws_in_changed,
  throws_in_hold,
  throws_in_backward,
};

extern const Fault kFault;  // fault of this plugin, defined in variant.cpp
void offer(heddle::Offer& plugin);

}  // namespace zero1
