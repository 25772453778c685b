// The fields of `strategy: ddp`.
#pragma once

#include <optional>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"

namespace heddle::ddp {

// The fields and defaults of NeMo AutoModel's DDPConfig.
struct DdpConfig {
  bool activation_checkpointing = false;
  CheckpointingScope activation_checkpointing_scope;
  bool broadcast_buffers = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::optional<double> bucket_cap_mb;  // MiB; null: 25
  bool gradient_as_bucket_view = false;
  DTypeWord autocast_dtype;
};
using Config = DdpConfig;

inline ConfigSchema<DdpConfig> schema() {
  using C = DdpConfig;
  return ConfigSchema<C>()
      .field("activation_checkpointing", &C::activation_checkpointing,
             "Stands for the key of the section, which is read apart; stays false here.")
      .field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
             "Groups of layers that are checkpointed: all, or some of language, vision, audio, multimodal.")
      .field("broadcast_buffers", &C::broadcast_buffers,
             "Send rank 0's buffers before the first forward of a step and of an evaluation.")
      .field("find_unused_parameters", &C::find_unused_parameters,
             "Look in the graph of each step for what it does not use, so that sums need not wait for it.")
      .field("static_graph", &C::static_graph,
             "The first step says which parameters are used; another use later is an error.")
      .field("bucket_cap_mb", &C::bucket_cap_mb, "Size of a bucket of gradients in MiB; null: 25.",
             at_least(0.0))
      .field("gradient_as_bucket_view", &C::gradient_as_bucket_view,
             "Autograd adds straight into the buckets: no second copy of the gradients.")
      .field("autocast_dtype", &C::autocast_dtype,
             "Run forward under autocast: products and attention in bfloat16 or float16.")
      .later("activation_checkpointing_scope", "models with vision or audio towers are not built yet",
             [](const C& config) { return config.activation_checkpointing_scope.all_or_language(); })
      .rule([](const C& config) { return autocast_complaint(config.autocast_dtype); });
}

}  // namespace heddle::ddp
