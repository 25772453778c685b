// Splits parameters: points slots at this rank's part, and records the part for the strategy.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/sdk.h"
#include "parts.h"

namespace heddle::tensor {

class Splitter {
 public:
  // `units`: not split yet. A tied parameter is split once, and all its slots get the same part.
  Splitter(Units& units, const DeviceMesh& mesh);

  // Keeps this rank's part of a slot's tensor along dim. Throws Error{input} if there are fewer elements than
  // ranks, or if a tied parameter is split in two ways.
  Part split(at::Tensor& slot, int64_t dim);
  // Marks the gradient as this rank's part of a sum.
  void sum_gradient(at::Tensor& slot);

  // Returns the recorded parts. Throws Error{config} for a tied parameter of which some slot is not split.
  std::vector<Placed> finish();

 private:
  struct Cut {
    at::Tensor part;
    int64_t dim, whole;
    Part place;
  };
  ParameterSlot& slot_of(at::Tensor& tensor);

  int ranks_, rank_;
  std::vector<ParameterSlot> slots_;
  std::map<const at::Tensor*, size_t> places_;
  std::map<std::string, Cut> cuts_;
  std::vector<Placed> placed_;
};

}  // namespace heddle::tensor
