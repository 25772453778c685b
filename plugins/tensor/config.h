// Fields of the parallelizer `tensor`, which are fields of the strategy's section.
#pragma once

#include <string>

#include "heddle/sdk.h"

namespace heddle::tensor {

// Tensor-parallel fields of NeMo AutoModel's strategies.
struct TensorConfig {
  Node tp_plan;
  bool sequence_parallel = false;
  bool enable_async_tensor_parallel = false;
};
using Config = TensorConfig;

inline void check_plan(const Node& value) {
  if (value.is_null() || value.is_map()) return;
  throw Error(ErrorCode::config, value.where(), "expected a map or null, got " + value.written(),
              "set a map; the engine replaces the name of a plan by its map");
}

inline ConfigSchema<TensorConfig> schema() {
  using C = TensorConfig;
  return ConfigSchema<C>()
      .field("tp_plan", &C::tp_plan,
             "Styles of modules by path: a map, or the name of a plan that a plugin offers. null: the plan "
             "of the architecture.",
             Check{"map or null", check_plan})
      .field("sequence_parallel", &C::sequence_parallel,
             "Split the token rows among the ranks of tp outside of split layers.")
      .field("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
             "Overlap the communication of a part of a tensor with the products of other parts.")
      .rule([](const C& config) -> std::string {
        if (!config.enable_async_tensor_parallel || config.sequence_parallel) return "";
        return "enable_async_tensor_parallel=True requires sequence_parallel=True";
      });
}

}  // namespace heddle::tensor
