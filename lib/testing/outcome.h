// Results of a training, and their comparison with those of another one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/testing/whole_tensors.h"

namespace heddle::kits {

struct Outcome {
  std::vector<double> losses, norms;                 // [step]; norm -1: the update was skipped
  std::vector<double> validation;                    // losses without gradients, in order
  std::map<std::string, std::vector<double>> sides;  // side outputs: the elements of each step, one by one
  std::vector<Named> gradients = {};                 // [step]; empty: not gathered
  Named parameters = {};                             // at the end, whole
  Named averages = {}, squares = {}, steps = {};     // of AdamW's state: exp_avg, exp_avg_sq, step
  std::vector<int> peaks = {};                       // [rank]: microbatches alive at once
};

// Relative differences that rounding in float32 explains.
struct Tolerance {
  double loss = 2e-5, norm = 2e-4;
  // Bound for a parameter after updates by AdamW, which divides by the root of the squares: an element whose
  // gradient is close to zero moves by up to the learning rate, whatever rounding left of it. At most 1 % of
  // the elements (or 3) may be farther apart than 2e-5 + 1e-3 |x|, and none farther than this part of the
  // largest element, plus 2e-4.
  double parameter = 1e-3;
};

// Returns every difference beyond the tolerance, a line each, step by step: "the loss of step 3 differs by
// 1.2e-04", or "". Gradients of the first step agree to 1e-4 of their largest element, which is taken to be
// at least 1e-3 of the largest element of all gradients and 1e-2 of that of their layer. Gradients of later
// steps agree to 5e-4, and so do parameters if gradients are given, because their updates are plain.
HEDDLE_API std::string differences(const Outcome& got, const Outcome& want, const Tolerance& tolerance = {});

// Returns every loss, norm, parameter and element of AdamW's averages that has other bits; empty: none.
HEDDLE_API std::string bit_differences(const Outcome& got, const Outcome& want);

// Returns the largest relative difference of the losses: "loss differs by 1.2e-07".
HEDDLE_API std::string distance(const Outcome& got, const Outcome& want);

}  // namespace heddle::kits
