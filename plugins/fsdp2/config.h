// The fields of `strategy: fsdp2`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"

namespace heddle::fsdp2 {

using MpPolicy = MixedPrecision;

// Offload of shards, gradients and optimizer state to host memory.
struct Offload {
  bool pin_memory = true;
};

// Split of a vision tower's frames among the ranks of context parallelism.
struct FrameSharding {
  bool enabled = false;
  std::vector<std::string> mesh_dims = {"cp"};
  int64_t min_tokens = 2048;
  int64_t min_frames = 32;
  int64_t min_local_patch_rows = 96;
  Node cost_alpha = Node::text("auto");
};

struct Vision {
  FrameSharding frame_sharding;
};

struct Multimodal {
  std::string frozen_sharding = "root";
  Vision vision;
};

// The fields and defaults of NeMo AutoModel's FSDP2Config.
struct Fsdp2Config {
  bool sequence_parallel = false;
  Node tp_plan;
  bool patch_is_packed_sequence = false;
  std::optional<MpPolicy> mp_policy = MpPolicy{{"bfloat16"}, {"float32"}, {}, false};
  std::optional<Offload> offload_policy;
  DTypeWord autocast_dtype;
  bool activation_checkpointing = false;
  CheckpointingScope activation_checkpointing_scope;
  bool defer_fsdp_grad_sync = true;
  std::optional<bool> reshard_after_forward;
  bool enable_async_tensor_parallel = false;
  bool enable_compile = false;
  bool enable_fsdp2_prefetch = false;
  int64_t fsdp2_backward_prefetch_depth = 2;
  int64_t fsdp2_forward_prefetch_depth = 1;
  Multimodal multimodal;
};
using Config = Fsdp2Config;

ConfigSchema<Fsdp2Config> schema();

}  // namespace heddle::fsdp2
