// Whole parameters for the length of a scope.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/stages.h"

namespace heddle {

// Gathers the parameters of a rank's stages and gives them back at the end of the scope, also when an
// exception ends it: for sampling without a gather for each token, and for reading parameters. Made between
// two steps, by all ranks of the strategy's axes; it does not nest. The stages outlive it. Throws
// Error{plugin_failed} where a strategy gives parts of parameters.
class HEDDLE_API Unsharded {
 public:
  explicit Unsharded(Stages& stages);
  ~Unsharded();
  Unsharded(const Unsharded&) = delete;
  Unsharded& operator=(const Unsharded&) = delete;

  // Every parameter of this rank's stages, a tied one once; valid in the scope.
  const std::vector<WholeParameter>& parameters() const { return parameters_; }

 private:
  Stages& stages_;
  std::vector<WholeParameter> parameters_;
};

}  // namespace heddle
