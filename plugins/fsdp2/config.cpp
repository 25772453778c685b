// The table of fsdp2's fields: keys, types, checks, and fields that are not built.
#include "config.h"

namespace heddle {
namespace fsdp2 {
namespace {

ConfigSchema<Offload> offload_schema() {
  return ConfigSchema<Offload>().field(
      "pin_memory", &Offload::pin_memory,
      "Page-locked host memory, which a GPU copies from and to without a stop; "
      "says nothing on the CPU.");
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
      .field("enabled", &FrameSharding::enabled, "Share frames among the ranks.")
      .field("mesh_dims", &FrameSharding::mesh_dims, "Axes that share them.",
             Check{"[\"cp\"]", check_mesh_dims})
      .field("min_tokens", &FrameSharding::min_tokens, "Fewer visual tokens stay whole.",
             at_least<int64_t>(0))
      .field("min_frames", &FrameSharding::min_frames, "This many frames are shared in any case.",
             at_least<int64_t>(0))
      .field("min_local_patch_rows", &FrameSharding::min_local_patch_rows,
             "Smaller local parts are padded to this many rows.", at_least<int64_t>(0))
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
  return ConfigSchema<Vision>().field("frame_sharding", &Vision::frame_sharding, "How frames are shared.");
}

ConfigSchema<Multimodal> multimodal_schema() {
  return ConfigSchema<Multimodal>()
      .field("frozen_sharding", &Multimodal::frozen_sharding,
             "Where units whose parameters are all frozen live.", OneOf{{"root", "per_layer", "replicate"}})
      .field("vision", &Multimodal::vision, "The vision tower.");
}

void mark_what_comes_later(ConfigSchema<Fsdp2Config>& schema) {
  schema
      .later(
          "activation_checkpointing_scope", "models with vision or audio towers are not built yet",
          [](const Fsdp2Config& config) { return config.activation_checkpointing_scope.all_or_language(); })
      .later("multimodal", "there are no models with vision towers, so no frames to share",
             [](const Fsdp2Config& config) {
               const FrameSharding given = config.multimodal.vision.frame_sharding;
               return frame_sharding_schema().write(given) == frame_sharding_schema().write({});
             });
}

void add_parallel_fields(ConfigSchema<Fsdp2Config>& schema) {
  using C = Fsdp2Config;
  schema
      .field("sequence_parallel", &C::sequence_parallel,
             "Split the sequence between tensor-parallel regions.")
      .field("tp_plan", &C::tp_plan, "An own plan of tensor parallelism: a map, or a name.",
             Check{"map, word or null", check_tp_plan})
      .field("patch_is_packed_sequence", &C::patch_is_packed_sequence,
             "A promise that no sequence is packed. None is, and no layer asks: nothing changes.")
      .field("mp_policy", &C::mp_policy,
             "Dtypes of compute, sums and outputs: param_dtype, reduce_dtype, output_dtype, "
             "cast_forward_inputs. "
             "Null is the default; a map starts from null and false.")
      .field("offload_policy", &C::offload_policy,
             "Keep shards, gradients and optimizer state in host memory and update them there: "
             "{pin_memory: true}. Null: where the model computes.")
      .field("autocast_dtype", &C::autocast_dtype,
             "Run forward under autocast: products and attention in bfloat16 or float16.")
      .field("activation_checkpointing", &C::activation_checkpointing,
             "Stands for the key of the section, which is read apart; stays false here.")
      .field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
             "Groups of layers that are checkpointed: all, or some of language, vision, audio, multimodal.");
}

void add_sharding_fields(ConfigSchema<Fsdp2Config>& schema) {
  using C = Fsdp2Config;
  schema
      .field("defer_fsdp_grad_sync", &C::defer_fsdp_grad_sync,
             "Reduce gradients once a step instead of once a microbatch.")
      .field("reshard_after_forward", &C::reshard_after_forward,
             "Free whole parameters after forward. Null: all units but the last; none in a pipeline.")
      .field("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
             "Overlap tensor-parallel communication with compute.")
      .field("enable_compile", &C::enable_compile,
             "Layers are kernels already: there is no graph to compile.")
      .field("enable_fsdp2_prefetch", &C::enable_fsdp2_prefetch,
             "Gather as many units ahead as the two depths say, where units are freed after forward and "
             "there is no pipeline; else one.")
      .field("fsdp2_backward_prefetch_depth", &C::fsdp2_backward_prefetch_depth,
             "Units gathered ahead in backward; 0: none.", at_least<int64_t>(0))
      .field("fsdp2_forward_prefetch_depth", &C::fsdp2_forward_prefetch_depth,
             "Units gathered ahead in forward; 0: none.", at_least<int64_t>(0))
      .field(
          "multimodal", &C::multimodal,
          "Where units live whose parameters are all frozen, frozen_sharding: root (whole from their first "
          "use to the end of the step), per_layer (as every unit), replicate (whole on every rank). "
          "vision.frame_sharding.");
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
