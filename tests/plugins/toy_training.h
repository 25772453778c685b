// Runs of the toy units, for tests of strategies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugins/toy_units.h"
#include "plugins/training_world.h"

namespace heddle::tests {

inline const std::string kFloat = "mp_policy: {param_dtype: float32, reduce_dtype: float32}\n";

// The mesh of fsdp2.
inline std::vector<Axis> shards(int ranks, int replicas = 1) {
  return {{"pp", 1}, {"dp_replicate", replicas}, {"dp_shard", ranks}, {"cp", 1}, {"tp", 1}};
}

// For fsdp2 in fp32, unless `more` has an mp_policy of its own.
Training toy(const std::string& strategy, std::vector<Axis> axes, const std::string& more = "",
             Toy shape = {});

// How many events start like this.
int count(const Events& events, const std::string& start);

// Slices 0 and 1 are the two ranks, or the two microbatches of one rank; where the value is 0, the layers'
// `extra` takes no part.
void use_extra_where(Training& run, const std::vector<double>& used);

void expect_same(const std::map<std::string, at::Tensor>& got, const std::map<std::string, at::Tensor>& want);

// The error that body throws, as a person sees it.
std::string error_of(const std::function<void()>& body);

}  // namespace heddle::tests
