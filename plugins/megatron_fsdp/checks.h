// Checks of gradients before they are summed, while their parameters are known.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/base/log.h"
#include "options.h"

namespace heddle::megatron_fsdp {

class Gradients;

// Each check reads a number back from the device, and so waits for it: it is made only if configured.
class Checks {
 public:
  // `rank`: of the world.
  Checks(const Options& options, int rank, Log log);

  // Of a bucket about to be reduced. Throws Error{input} for NaN and Inf if configured, and warns of
  // a norm ten times the largest of the first hundred.
  void look_at(const Gradients& gradients);

  // Of each parameter's gradient, at the end of a microbatch's backward. Throws Error{input}.
  void look_at_parameters(const Gradients& gradients, int64_t microbatch) const;

  bool parameters() const { return parameters_; }

 private:
  std::string faulty_members(const Gradients& gradients) const;

  bool buckets_, large_, parameters_;
  std::string name_;
  int rank_;
  Log log_;
  int64_t samples_ = 0;
  double largest_ = 0;
};

}  // namespace heddle::megatron_fsdp
