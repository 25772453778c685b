// A part of a forward that keeps its inputs only: the values that its nodes save are recomputed in the
// backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::model {

// What selective checkpointing distinguishes: every second product is kept, the results of the others always.
enum class Operator { product, attention, collective };

// One run of a unit's forward (activation checkpointing without a backward inside the backward). While it is
// recorded, nodes get indices instead of keeping tensors (Saved). The first node that needs its value makes
// the region run the forward again, which ends as soon as the last value is available. One thread at a time;
// the nodes own it.
class HEDDLE_API Region : public c10::intrusive_ptr_target {
 public:
  enum class Keeps { nothing, costly_results };
  explicit Region(Keeps keeps) : keeps_(keeps) {}
  ~Region() override;

  // The region that is recorded or run again on this thread; null: none.
  static Region* active();

  // Makes the region active until the end of the scope: the forward.
  class HEDDLE_API Run {
   public:
    explicit Run(Region& region);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    Region& region_;
    Region* outer_;
  };

  // For operators below autograd, in the order of the forward: a kept result; undefined if none was kept.
  at::Tensor take_result(Operator kind);
  // Called with the result if take_result() returned none.
  void give_result(Operator kind, const at::Tensor& result);
  // Saved values are dropped now, so values for the backward alone need not be computed.
  bool drops_values() const { return state_ == State::recording; }

 protected:
  // Runs the same forward with gradients enabled and all other state restored. It is left early by an
  // exception that must not be caught. Called once.
  virtual void run_again() = 0;

 private:
  friend class Saved;
  enum class State { recording, recorded, running_again, complete };
  struct Value {
    at::Tensor tensor;
    uint32_t version = 0;
  };
  struct Result {
    at::Tensor tensor;
    int32_t values_before = 0;  // values before it
  };
  bool keeps(Operator kind) const;
  static constexpr int32_t kNoPlace = -2;
  // While recorded: an index for a value, which is dropped. While run again: takes the value of the next
  // index, and ends the run with the last one.
  int32_t add(const at::Tensor& value);
  Value take(int32_t place);
  void compute_values();
  void close();

  Keeps keeps_;
  State state_ = State::recording;
  int32_t count_ = 0;     // indices given
  int32_t products_ = 0;  // seen so far
  size_t next_result_ = 0;
  std::vector<Value> values_;
  std::vector<Result> results_;
};

// compute(), or its kept result in a region. Called below autograd.
template <class Compute>
at::Tensor once(Operator kind, Compute&& compute) {
  Region* region = Region::active();
  if (region == nullptr) [[likely]]
    return std::forward<Compute>(compute)();
  at::Tensor result = region->take_result(kind);
  if (result.defined()) return result;
  result = std::forward<Compute>(compute)();
  region->give_result(kind, result);
  return result;
}

}  // namespace heddle::model
