// Schema of fsdp2: keys, types, checks, and keys that are not built.
#include "config.h"

namespace heddle {
namespace fsdp2 {
namespace {

ConfigSchema<Offload> offload_schema() {
  return ConfigSchema<Offload>().field("pin_memory", &Offload::pin_memory,
                                       "Use page-locked host memory, so that copies from and to a GPU are "
                                       "asynchronous. No effect on the CPU.");
}

void check_mesh_dims(const Node& value) {
  if (!value.is_list())
    throw Error(ErrorCode::config, value.where(), value.path() + " must be a list of mesh-dimension names");
  if (!(value == Node::list({Node::text("cp")})))
    throw Error(ErrorCode::config, value.where(), value.path() + " currently supports only [\"cp\"]");
}

void check_cost_alpha(const Node& value) {
  const bool number = value.kind() == Node::Kind::integer && value.as_integer() >= 0;
  if (!value.is_null() && !number && !(value == Node::text("auto")))
    throw Error(ErrorCode::config, value.where(),
                value.path() + " must be \"auto\", null, or a non-negative integer");
}

void check_tp_plan(const Node& value) {
  if (!value.is_null() && !value.is_map() && value.kind() != Node::Kind::text)
    throw Error(ErrorCode::config, value.where(), "expected a map, a word or null, got " + value.written());
}

ConfigSchema<FrameSharding> frame_sharding_schema() {
  return ConfigSchema<FrameSharding>()
      .field("enabled", &FrameSharding::enabled, "Split frames among the ranks.")
      .field("mesh_dims", &FrameSharding::mesh_dims, "Mesh axes that split frames.",
             Check{"[\"cp\"]", check_mesh_dims})
      .field("min_tokens", &FrameSharding::min_tokens, "Minimum number of visual tokens to split.",
             at_least<int64_t>(0))
      .field("min_frames", &FrameSharding::min_frames, "Number of frames from which frames are always split.",
             at_least<int64_t>(0))
      .field("min_local_patch_rows", &FrameSharding::min_local_patch_rows,
             "Number of rows to which smaller local parts are padded.", at_least<int64_t>(0))
      .field("cost_alpha", &FrameSharding::cost_alpha, "Linear term of a frame's cost.",
             Check{"\"auto\", null, or at least 0", check_cost_alpha});
}

ConfigSchema<Vision> vision_schema();
ConfigSchema<Multimodal> multimodal_schema();

}  // namespace
}  // namespace fsdp2

template <>
struct FieldType<fsdp2::Offload> {
  static std::string type_name() { return "map"; }
  static fsdp2::Offload read(const Node& value) {
    return fsdp2::offload_schema().read(config::without_target(value, "CPUOffloadPolicy"));
  }
  static Node write(const fsdp2::Offload& value) { return fsdp2::offload_schema().write(value); }
};
template <>
struct FieldType<fsdp2::FrameSharding> : SectionField<fsdp2::FrameSharding, &fsdp2::frame_sharding_schema> {};
template <>
struct FieldType<fsdp2::Vision> : SectionField<fsdp2::Vision, &fsdp2::vision_schema> {};
template <>
struct FieldType<fsdp2::Multimodal> : SectionField<fsdp2::Multimodal, &fsdp2::multimodal_schema> {};

namespace fsdp2 {
namespace {

ConfigSchema<Vision> vision_schema() {
  return ConfigSchema<Vision>().field("frame_sharding", &Vision::frame_sharding,
                                      "Settings of frame sharding.");
}

ConfigSchema<Multimodal> multimodal_schema() {
  return ConfigSchema<Multimodal>()
      .field("frozen_sharding", &Multimodal::frozen_sharding,
             "Placement of units whose parameters are all frozen.", OneOf{{"root", "per_layer", "replicate"}})
      .field("vision", &Multimodal::vision, "Settings of the vision tower.");
}

void mark_what_comes_later(ConfigSchema<Fsdp2Config>& schema) {
  schema
      .later(
          "activation_checkpointing_scope", "models with vision or audio towers are not built yet",
          [](const Fsdp2Config& config) { return config.activation_checkpointing_scope.all_or_language(); })
      .later("multimodal", "models with vision towers are not built yet", [](const Fsdp2Config& config) {
        const FrameSharding given = config.multimodal.vision.frame_sharding;
        return frame_sharding_schema().write(given) == frame_sharding_schema().write({});
      });
}

void add_parallel_fields(ConfigSchema<Fsdp2Config>& schema) {
  using C = Fsdp2Config;
  schema
      .field("sequence_parallel", &C::sequence_parallel,
             "Split the sequence outside of tensor-parallel regions.")
      .field("tp_plan", &C::tp_plan,
             "Plan of tensor parallelism: a map, or the name of a plan. null: the model's plan.",
             Check{"map, word or null", check_tp_plan})
      .field("patch_is_packed_sequence", &C::patch_is_packed_sequence, "Ignored: no layer depends on it.")
      .field("mp_policy", &C::mp_policy,
             "Mixed precision: {param_dtype, reduce_dtype, output_dtype, cast_forward_inputs}, the dtypes of "
             "compute, gradient reduction and outputs. null: the default. Keys missing from a map are null "
             "and false.")
      .field("offload_policy", &C::offload_policy,
             "Keep shards, gradients and optimizer state in host memory, and update parameters there: "
             "{pin_memory: true}. null: on the model's device.")
      .field("autocast_dtype", &C::autocast_dtype,
             "Dtype of autocast in the forward: linear layers and attention run in bfloat16 or float16. "
             "null: no autocast.")
      .field("activation_checkpointing", &C::activation_checkpointing,
             "Ignored here: set distributed.activation_checkpointing.")
      .field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
             "Groups of layers to checkpoint: all, or a list of language, vision, audio and multimodal.");
}

void add_sharding_fields(ConfigSchema<Fsdp2Config>& schema) {
  using C = Fsdp2Config;
  schema
      .field("defer_fsdp_grad_sync", &C::defer_fsdp_grad_sync,
             "Reduce gradients once per step instead of once per microbatch.")
      .field("reshard_after_forward", &C::reshard_after_forward,
             "Free whole parameters after the forward. null: for all units but the last, and for none in a "
             "pipeline.")
      .field("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
             "Overlap tensor-parallel communication with compute.")
      .field("enable_compile", &C::enable_compile, "Ignored: heddle has no graph to compile.")
      .field("enable_fsdp2_prefetch", &C::enable_fsdp2_prefetch,
             "Prefetch units to the depths below. It applies if units are freed after the forward and there "
             "is no pipeline. Otherwise one unit is prefetched.")
      .field("fsdp2_backward_prefetch_depth", &C::fsdp2_backward_prefetch_depth,
             "Number of units to prefetch in the backward pass. 0 disables prefetching.",
             at_least<int64_t>(0))
      .field("fsdp2_forward_prefetch_depth", &C::fsdp2_forward_prefetch_depth,
             "Number of units to prefetch in the forward pass. 0 disables prefetching.", at_least<int64_t>(0))
      .field("multimodal", &C::multimodal,
             "Settings of multimodal models. frozen_sharding: placement of units whose parameters are all "
             "frozen. root: whole from their first use to the end of the step. per_layer: like every other "
             "unit. replicate: whole on every rank. vision.frame_sharding: split of frames among ranks.");
}

}  // namespace

ConfigSchema<Fsdp2Config> schema() {
  ConfigSchema<Fsdp2Config> schema;
  add_parallel_fields(schema);
  add_sharding_fields(schema);
  schema.rule([](const Fsdp2Config& config) { return autocast_complaint(config.autocast_dtype); });
  schema.then([](Fsdp2Config& config) {
    if (!config.mp_policy) config.mp_policy = Fsdp2Config{}.mp_policy;
  });
  mark_what_comes_later(schema);
  return schema;
}

}  // namespace fsdp2
}  // namespace heddle
