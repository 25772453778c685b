// Region, a part of a forward that saves only its inputs. The backward recomputes the values that its nodes
// need.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::model {

// Operators that selective checkpointing distinguishes. It keeps the result of every second matrix product
// and of all other operators.
enum class Operator { product, attention, collective };

// One forward of a unit under activation checkpointing, without a nested backward. During the forward, nodes
// save indices instead of tensors (Saved). The first node that needs a value runs the forward again, which
// ends as soon as the last value is available. Used by one thread at a time and owned by the nodes.
class HEDDLE_API Region : public c10::intrusive_ptr_target {
 public:
  enum class Keeps { nothing, costly_results };
  explicit Region(Keeps keeps) : keeps_(keeps) {}
  ~Region() override;

  // Returns the region that this thread records or runs again, or null.
  static Region* active();

  // A scope in which the region is active, around the forward.
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

  // Returns the kept result of an operator below autograd, in the order of the forward; undefined if it was
  // not kept.
  at::Tensor take_result(Operator kind);
  // Stores the result. Called if take_result() returned an undefined tensor.
  void give_result(Operator kind, const at::Tensor& result);
  // Returns whether saved values are dropped, so that values used only in the backward need not be computed.
  bool drops_values() const { return state_ == State::recording; }

 protected:
  // Runs the forward again with gradients enabled and all other state restored. Ends early by an exception
  // that must not be caught. Called once.
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
    int32_t values_before = 0;  // number of values saved before it
  };
  bool keeps(Operator kind) const;
  static constexpr int32_t kNoPlace = -2;
  // In the first forward, returns an index for a value and drops the value. In the second forward, stores the
  // value at the next index, and ends the forward after the last one.
  int32_t add(const at::Tensor& value);
  Value take(int32_t place);
  void compute_values();
  void close();

  Keeps keeps_;
  State state_ = State::recording;
  int32_t count_ = 0;     // number of indices
  int32_t products_ = 0;  // number of products so far
  size_t next_result_ = 0;
  std::vector<Value> values_;
  std::vector<Result> results_;
};

// Returns compute(), or its kept result in a region. Called below autograd.
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
