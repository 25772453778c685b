// The ways in which a variant of ZeRO-1 is wrong; Fault::none is the correct one.
#pragma once

namespace heddle {
class Offer;
}

namespace zero1 {

enum class Fault {
  none,
  tied_twice,            // owns a tied parameter once for each slot
  unused_gets_zero,      // a gradient of zeros where no rank had one
  unused_not_agreed,     // drops the sum on a rank that had no gradient itself
  frozen_trains,         // owned shards of frozen parameters require gradients and get zeros
  foreign_replaced,      // assigns the slot's tensor instead of changing the foreign module's in place
  empty_shard_crashes,   // reads the first element of each shard
  empty_not_listed,      // leaves empty shards out of owned()
  owns_nothing_throws,   // a rank without any element throws
  averages,              // the average over the ranks in place of the sum
  last_forgotten,        // takes the gradients when the last backward is announced
  bucket_forgotten,      // reduces the first bucket only
  order_differs,         // every second rank reduces its buckets in the opposite order
  drain_ignored,         // takes the gradients when as many backwards have ended as forwards
  first_hook_counts,     // takes a leaf's gradient at the first call of its hook in the last backward
  evaluation_counts,     // counts the forwards of an evaluation as microbatches
  whole_is_part,         // hold_whole() gives the owned shards
  change_ignored,        // gathers after its own update only
  first_ranks_kept,      // cuts buckets by the number of ranks of the first mesh in the process
  needs_hints,           // sums in reduce_gradients(), which need not come
  needs_unshard,         // computes only after unshard()
  gradient_is_view,      // gives gradients as views of autograd
  offset_wrong,          // the box of the second parameter begins one row late
  axes_missing,          // shards do not say that dp splits them
  remainder_lost,        // the last elements of a bucket that the ranks do not divide are on no rank
  gradients_pile_up,     // does not clear the model's gradients after a step
  parts_unplaced,        // ignores what a parallelizer cut
  values_of_each_rank,   // each rank begins with its own values, not with those of rank 0
  work_dropped,          // does not wait for its reduce_scatter
  loops_in_finish,       // one rank does not return from finish_gradients()
  last_microbatch_only,  // the gradients of the step's last microbatch
  mean_of_microbatches,  // the sum divided by the microbatches
  frozen_drifts,         // changes parameters that require no gradient
  stale_every_second,    // gathers after every second update
  sums_are_rounded,      // gradients are summed in bfloat16
  values_are_rounded,    // the model computes with rounded parameters
  reads_before_wait,     // takes the sum before wait()
  waits_twice,           // calls wait() twice
  divisor_wrong,         // the sums are multiplied by 2, as if they were averages
  release_loses,         // release_whole() leaves zeros in the model
  axes_too_many,         // a frozen parameter says that dp splits it
  names_changed,         // shards have a prefix before their names
  extra_lost,            // hands on a batch without `extra`
  clips_gradients,       // scales large gradients
  owned_is_a_copy,       // owned() gives copies of the shards
  needs_change,          // the second strategy of a process has another mesh
  promises_restart,      // may_use has post_validation, and the stage has no restart_step()
  skips_second_reduce,   // one rank reduces in the first step alone
  exits_in_finish,       // ends the process with status 0
  dies_in_second_step,
  throws_in_forward,
  throws_in_finish,
  throws_in_owned,
  throws_in_changed,
  throws_in_hold,
  throws_in_backward,
};

extern const Fault kFault;  // of this plugin; variant.cpp has it
void offer(heddle::Offer& plugin);

}  // namespace zero1
