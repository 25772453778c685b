// Records operators with their costs, and allocations with their lifetimes, of code that runs on meta
// tensors.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// The cost of an operator.
struct OperatorCost {
  double operations = 0;         // multiplications and additions; for elementwise operators, one per element
  double read = 0, written = 0;  // bytes
};

// The shape of a matrix product: `batch` products of [m, k] times [k, n]. For attention: `batch` heads over
// all rows, m queries and n keys of size k. For a grouped product: `batch` groups of m rows on average.
struct ProductShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;  // dtype of the inputs
  bool operator==(const ProductShape&) const = default;
};

// One recorded operator. Calls, allocations and releases share one numbering from 0 in the order of events,
// called moments.
struct OperatorCall {
  const char* name = "";  // "aten::mm", "heddle::attention"; a string of static lifetime
  OperatorCost cost;
  // Set for matrix products and attention, which run on the device's matrix units.
  std::optional<ProductShape> product;
  int64_t moment = 0;
};

// An allocation and the moments of its begin and end.
struct Allocation {
  static constexpr int64_t kAlive = -1;
  int64_t bytes = 0;
  int64_t begin = 0, end = kAlive;  // moments
};

// The recorded operators and allocations of a thread.
struct HEDDLE_API ComputeLog {
  std::vector<OperatorCall> calls;  // without views and empty tensors
  std::vector<Allocation> allocations;

  OperatorCost total(int64_t from = 0) const;  // sum over the calls from this moment on
  int64_t alive(int64_t moment) const;         // bytes allocated at this moment
  int64_t peak(int64_t from = 0) const;        // maximum number of bytes allocated from this moment on
};

// Records the operators and allocations of this thread on meta tensors during its lifetime. A thread has at
// most one recorder. LibTorch operators are recorded with their shapes; a composite operator is recorded as
// the operators that it calls. Operators with their own kernels, which only create shapes on meta, report
// their cost with record_operator().
class HEDDLE_API ComputeRecorder {
 public:
  ComputeRecorder();  // throws Error{internal} if this thread has a recorder
  ~ComputeRecorder();
  ComputeRecorder(const ComputeRecorder&) = delete;
  ComputeRecorder& operator=(const ComputeRecorder&) = delete;

  int64_t moment() const;  // the number of the next event
  ComputeLog log() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// A scope in which this thread's recorder records neither operators nor allocations. Releases of earlier
// allocations are still recorded.
class HEDDLE_API ComputePause {
 public:
  ComputePause();
  ~ComputePause();
  ComputePause(const ComputePause&) = delete;
  ComputePause& operator=(const ComputePause&) = delete;

 private:
  bool was_;
};

// Records an operator that only created shapes. Does nothing if this thread has no recorder.
HEDDLE_API void record_operator(const char* name, const OperatorCost& cost,
                                const std::optional<ProductShape>& product = {});
// Returns whether this thread has a recorder that is not paused.
HEDDLE_API bool records_operators();
// Returns a moment for an event that this thread's recorder does not see, or -1 without a recorder.
HEDDLE_API int64_t record_moment();

}  // namespace heddle
