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
  std::optional<double> bucket_cap_mb;  // MiB. null: 25
  bool gradient_as_bucket_view = false;
  DTypeWord autocast_dtype;
};
using Config = DdpConfig;

inline ConfigSchema<DdpConfig> schema() {
  using C = DdpConfig;
  return ConfigSchema<C>()
      .field("activation_checkpointing", &C::activation_checkpointing,
             "Ignored here: set distributed.activation_checkpointing.")
      .field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
             "Groups of layers to checkpoint: all, or a list of language, vision, audio and multimodal.")
      .field("broadcast_buffers", &C::broadcast_buffers,
             "Broadcast rank 0's buffers before the first forward of a step and of an evaluation.")
      .field("find_unused_parameters", &C::find_unused_parameters,
             "Traverse the autograd graph of each step to find unused parameters, so that reductions do not "
             "wait for their gradients.")
      .field("static_graph", &C::static_graph,
             "Every step uses the same parameters as the first step. A step that uses others is an error.")
      .field("bucket_cap_mb", &C::bucket_cap_mb, "Size of a gradient bucket in MiB. null: 25.", at_least(0.0))
      .field("gradient_as_bucket_view", &C::gradient_as_bucket_view,
             "Let autograd add into the buckets, which saves a second copy of the gradients.")
      .field("autocast_dtype", &C::autocast_dtype,
             "Dtype of autocast in the forward: linear layers and attention run in bfloat16 or float16. "
             "null: no autocast.")
      .later("activation_checkpointing_scope", "models with vision or audio towers are not built yet",
             [](const C& config) { return config.activation_checkpointing_scope.all_or_language(); })
      .rule([](const C& config) { return autocast_complaint(config.autocast_dtype); });
}

}  // namespace heddle::ddp
