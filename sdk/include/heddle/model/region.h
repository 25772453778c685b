// A stretch of a forward that keeps its inputs only: what its nodes save is computed again in the backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::model {

// What selective checkpointing tells apart: every other product is kept, the results of the rest always.
enum class Operator { product, attention, collective };

// One run of a unit's forward (activation checkpointing without a backward inside the backward). While it is
// recorded, nodes are given places instead of keeping tensors (Saved). The first node that asks for its value
// makes the region run the forward again, which ends as soon as the last value is there. One thread at a
// time; nodes hold it, and with the last of them it goes.
class HEDDLE_API Region : public c10::intrusive_ptr_target {
 public:
  enum class Keeps { nothing, costly_results };
  explicit Region(Keeps keeps) : keeps_(keeps) {}
  ~Region() override;

  // The region that is being recorded or run again on this thread; null: none.
  static Region* active();

  // Active from here to the end of the scope: the forward.
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

  // For operators below autograd. Asked for in the order of the forward: a result that was kept, undefined
  // where there is none.
  at::Tensor take_result(Operator kind);
  // Called with the result where take_result() gave none.
  void give_result(Operator kind, const at::Tensor& result);
  // What is saved now is dropped, so what serves the backward alone need not be computed.
  bool drops_values() const { return state_ == State::recording; }

 protected:
  // The same forward, with gradients on and everything else as it was then. It is left early, by an
  // exception that must pass. Called once.
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
    int32_t values_before = 0;  // places given before it
  };
  bool keeps(Operator kind) const;
  static constexpr int32_t kNoPlace = -2;
  // While recorded: a place for a value, which is dropped. While run again: takes the value of the next
  // place, and ends the run with the last one.
  int32_t add(const at::Tensor& value);
  Value take(int32_t place);
  void compute_values();
  void close();

  Keeps keeps_;
  State state_ = State::recording;
  int32_t count_ = 0;     // places given
  int32_t products_ = 0;  // met so far
  size_t next_result_ = 0;
  std::vector<Value> values_;
  std::vector<Result> results_;
};

// compute(), or its result of the first time where a region has kept it. Called below autograd.
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
