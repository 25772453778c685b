// What a step computes and allocates, recorded on meta tensors: operators with their costs, allocations with
// their lifetimes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct OperatorCost {
  double operations = 0;         // multiplications and additions; of other operators one an element
  double read = 0, written = 0;  // bytes
};

// Shape of a product of matrices, [m, k] times [k, n], `batch` times. Of attention: `batch` heads of all rows
// with m queries and n keys of k numbers each. Of a grouped product: `batch` groups of m rows on average.
struct ProductShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;  // of the factors
  bool operator==(const ProductShape&) const = default;
};

// Calls, allocations and releases are numbered from 0 in the order in which they happened: a moment.
struct OperatorCall {
  const char* name = "";  // "aten::mm", "heddle::attention"; lives as long as the process
  OperatorCost cost;
  // Of a product of matrices, or attention: computed at the peak of the device's matrix units.
  std::optional<ProductShape> product;
  int64_t moment = 0;
};

struct Allocation {
  static constexpr int64_t kAlive = -1;
  int64_t bytes = 0;
  int64_t begin = 0, end = kAlive;  // moments
};

struct HEDDLE_API ComputeLog {
  std::vector<OperatorCall> calls;  // views and empty tensors are left out
  std::vector<Allocation> allocations;

  OperatorCost total(int64_t from = 0) const;  // of the calls from a moment on
  int64_t alive(int64_t moment) const;         // bytes at a moment
  int64_t peak(int64_t from = 0) const;        // the most bytes at any moment from one on
};

// Records what this thread does with meta tensors while it lives, one at a time. Operators of LibTorch are
// recorded by their calls and shapes: one that calls others is the sum of these. Operators that compute with
// a kernel of their own, and make only shapes on meta, say their cost by record_operator().
class HEDDLE_API ComputeRecorder {
 public:
  ComputeRecorder();  // throws Error{internal} where this thread has one
  ~ComputeRecorder();
  ComputeRecorder(const ComputeRecorder&) = delete;
  ComputeRecorder& operator=(const ComputeRecorder&) = delete;

  int64_t moment() const;  // of what comes next
  ComputeLog log() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// While it lives, this thread's recorder records neither operators nor allocations. What was allocated before
// and is freed now counts as freed.
class HEDDLE_API ComputePause {
 public:
  ComputePause();
  ~ComputePause();
  ComputePause(const ComputePause&) = delete;
  ComputePause& operator=(const ComputePause&) = delete;

 private:
  bool was_;
};

// An operator that made only shapes. Nothing happens where this thread records nothing.
HEDDLE_API void record_operator(const char* name, const OperatorCost& cost,
                                const std::optional<ProductShape>& product = {});
HEDDLE_API bool records_operators();
// A moment of its own for an event that this thread's recorder does not see; -1 where it records nothing.
HEDDLE_API int64_t record_moment();

}  // namespace heddle
