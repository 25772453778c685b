// Cuts parameters: points slots at this rank's part, and records it for the strategy.
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
  // `units` whole; a tied parameter is cut once, and all its slots get the same part.
  Splitter(Units& units, const DeviceMesh& mesh);

  // Keeps this rank's part of a slot's tensor along dim. Throws Error{input} when there is less than one
  // index for each rank, or when a tied parameter is cut in two ways.
  Part split(at::Tensor& slot, int64_t dim);
  // The gradient is this rank's part of a sum.
  void sum_gradient(at::Tensor& slot);

  // What was done. Throws Error{config} for a tied parameter of which some slot was left whole.
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
