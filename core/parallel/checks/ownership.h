// The check that the shards of a strategy hold every parameter of the model exactly once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/checks/placed_check.h"
#include "heddle/parallel/build.h"

namespace heddle::parallel {

// Recorded from the whole model before it is cut; the same on every rank.
class Ownership {
 public:
  Ownership(const Units& units, const StageMap& map);

  // After parallelize(), on every rank: in each copy of a stage (the ranks along the axes of its shards)
  // every element of a parameter is in exactly one shard, and shards fit into their parameters. Sends one
  // digest for each parameter, however many ranks there are. Throws the same Error{plugin_failed} on every
  // rank: with the name of the parallelizer whose parts in `split` do not fit, else with the strategy's.
  void check(const Stages& stages, const Plan& plan, const Split& split, const DeviceMesh& mesh) const;

 private:
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    bool trainable;
    int place;  // of its stage on the axis pp
  };
  class Sums;
  std::string shard_error(const Shard& shard, int stage, const DeviceMesh& mesh) const;
  std::string local_fault(const Stages& stages, const DeviceMesh& mesh) const;
  std::string sums_error(const double* held, Sums& sums) const;

  std::vector<Parameter> parameters_;
  std::map<std::pair<std::string, int>, size_t> index_;  // by name and stage: tied stages have a copy each
};

}  // namespace heddle::parallel
