// Checks of gradients before reduction, while the parameter of each gradient is known.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/base/log.h"
#include "options.h"

namespace heddle::megatron_fsdp {

class Gradients;

// Each check reads a number back from the device and waits for it, so it runs only if configured.
class Checks {
 public:
  // `rank`: rank in the world.
  Checks(const Options& options, int rank, Log log);

  // Checks a bucket before its reduction. Throws Error{input} for NaN and Inf if configured. Warns of a norm
  // above ten times the largest norm of the first hundred buckets.
  void look_at(const Gradients& gradients);

  // Checks each parameter's gradient at the end of a microbatch's backward. Throws Error{input}.
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
