// Fully sharded data parallelism with per-parameter sharding, modeled on PyTorch's FSDP2 (fully_shard).
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "heddle/mesh/dry.h"
#include "heddle/sdk.h"
#include "stage.h"

namespace heddle::fsdp2 {
namespace {

// Parameters, gradients and optimizer state are split by rows over the ranks of dp_shard, or of dp_shard and
// cp with context parallelism. The ranks of dp_replicate hold copies of the shards (hybrid sharding).
class Fsdp2 : public IStrategy {
 public:
  explicit Fsdp2(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{input} for a parameter that cannot be split or tied, and Error{mesh} for axes that fsdp2
  // does not support.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

// Checks sizes in the order of AutoModel's FSDP2 mesh.
std::string check_sizes(const Sizes& sizes) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (sizes.dp_replicate >= sizes.dp && sizes.dp_replicate != 1)
    return "dp_replicate_size=" + number(sizes.dp_replicate) +
           " must be less than dp_size=" + number(sizes.dp) + " since DDP usecase is not supported by FSDP2";
  int64_t non_pp = 0;
  if (__builtin_mul_overflow(int64_t{sizes.dp} * sizes.cp, sizes.tp, &non_pp))
    return "";  // the world-size check refuses it
  if (non_pp % sizes.ep != 0)
    return "non_pp_size=" + number(non_pp) + " must be a multiple of ep_size=" + number(sizes.ep);
  return "";
}

std::optional<at::ScalarType> dtype_of(const DTypeWord& dtype) {
  if (dtype.word.empty()) return std::nullopt;
  if (dtype.word == "float32") return at::kFloat;
  if (dtype.word == "bfloat16") return at::kBFloat16;
  if (dtype.word == "float16") return at::kHalf;
  if (dtype.word == "float64") return at::kDouble;
  throw Error(ErrorCode::config, "distributed.mp_policy",
              "'" + dtype.word + "' is not a dtype of parameters and gradients",
              "use float32, bfloat16, float16 or float64");
}

Options options_of(const Config& config, int pipeline_ranks) {
  Options options;
  options.reshard_after_forward = config.reshard_after_forward;
  options.defer_reduction = config.defer_fsdp_grad_sync;
  options.autocast = dtype_of(config.autocast_dtype);
  std::optional<Ahead> asked;
  if (config.enable_fsdp2_prefetch)
    asked = Ahead{config.fsdp2_forward_prefetch_depth, config.fsdp2_backward_prefetch_depth};
  options.ahead = ahead(asked, config.reshard_after_forward, pipeline_ranks);
  const MpPolicy policy = config.mp_policy.value_or(*Config{}.mp_policy);
  options.precision.parameters = dtype_of(policy.param_dtype);
  options.precision.reduce = dtype_of(policy.reduce_dtype);
  options.precision.outputs = dtype_of(policy.output_dtype);
  options.precision.cast_inputs = policy.cast_forward_inputs;
  return options;
}

Frozen frozen_of(const Config& config) {
  const std::string& word = config.multimodal.frozen_sharding;
  return word == "replicate" ? Frozen::replicate : word == "per_layer" ? Frozen::per_layer : Frozen::root;
}

// A dry world has no memory to place shards in.
Place::Shards shards_of(const Config& config, const DeviceMesh& mesh) {
  if (!config.offload_policy || dry_rank(mesh) != nullptr) return Place::Shards::on_device;
  return config.offload_policy->pin_memory ? Place::Shards::in_pinned_memory : Place::Shards::in_host_memory;
}

// Returns one place per distinct reduction, that of dense parameters first.
std::vector<Place> places_over(const Reductions& reductions, const DeviceMesh& mesh,
                               const Precision& precision, Place::Shards shards) {
  Place place;  // fields common to all places
  place.compute = precision.parameters;
  place.reduce = precision.reduce;
  place.shards = shards;
  std::vector<Place> places;
  for (const Reduction& reduction : reductions.distinct()) {
    place.groups = sharding::groups_over(mesh, reduction);
    place.buffers =
        place.groups.reduce == nullptr ? nullptr : std::make_shared<ReduceBuffers>(place.groups.reduce);
    places.push_back(place);
  }
  return places;
}

const Place& find_place(const std::string& parameter, const Reduction& reduction,
                        const std::vector<Place>& places) {
  const auto found = std::find_if(places.begin(), places.end(),
                                  [&](const Place& place) { return place.groups.axes == reduction; });
  if (found->groups.shards == 1 && found->groups.replicas > 1)
    throw Error(ErrorCode::mesh, "fsdp2",
                "the gradient of '" + parameter + "' is summed over " + reduction.copies +
                    " only, but fsdp2 sums over copies only gradients of sharded parameters",
                "use the strategy ddp");
  return *found;
}

// A host may bring its own mesh. Gradients that are not summed would give wrong results without an error.
void check_mesh(const DeviceMesh& mesh) {
  const int dp = mesh.size("dp"), replicas = mesh.size("dp_replicate"), shards = mesh.size("dp_shard");
  if (dp != replicas * shards)
    throw Error(ErrorCode::mesh, "fsdp2",
                "this mesh has an axis dp of " + std::to_string(dp) + " ranks, which fsdp2 does not support",
                "name the axes pp, dp_replicate, dp_shard, cp, tp");
  if (replicas > 1 && mesh.size("dp_shard_cp") == 1)
    throw Error(ErrorCode::mesh, "fsdp2",
                "dp_replicate_size=" + std::to_string(replicas) + " must be less than dp_size=" +
                    std::to_string(dp) + " since DDP usecase is not supported by FSDP2",
                "use the strategy ddp");
}

// AutoModel ignores these depths silently. heddle warns.
void warn(const Config& config, const DeviceMesh& mesh) {
  const Config fresh;
  const bool depths = config.fsdp2_forward_prefetch_depth != fresh.fsdp2_forward_prefetch_depth ||
                      config.fsdp2_backward_prefetch_depth != fresh.fsdp2_backward_prefetch_depth;
  if (!depths || config.enable_fsdp2_prefetch || mesh.rendezvous().rank() != 0) return;
  mesh.log().warning(
      "fsdp2",
      "the prefetch depths have no effect because enable_fsdp2_prefetch is false: one unit is prefetched");
}

Needs Fsdp2::needs() const {
  Needs needs;
  needs.axes = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
  needs.may_use = {"selective_activation_checkpointing", "reductions", "post_validation"};
  needs.sizes_rule = check_sizes;
  return needs;
}

std::unique_ptr<ParallelStage> Fsdp2::parallelize(Units units, const DeviceMesh& mesh,
                                                  std::span<const Placed> placed) {
  check_mesh(mesh);
  warn(config_, mesh);
  const int pipeline_ranks = mesh.size(kPipelineAxis);
  const Options options = options_of(config_, pipeline_ranks);
  const Reductions reductions(mesh, placed);
  const std::vector<Place> all = places_over(reductions, mesh, options.precision, shards_of(config_, mesh));
  const Places places = [&](const std::string& parameter) -> const Place& {
    return find_place(parameter, reductions.of(parameter), all);
  };
  auto reshard = reshards(units.size(), options.reshard_after_forward, pipeline_ranks);
  sharding::Model model =
      make_model(std::move(units), placed, places, std::move(reshard), frozen_of(config_));
  if (std::all_of(all.begin(), all.end(), [](const Place& place) { return place.ranks() == 1; }))
    return make_local_stage(std::move(model), options);
  return make_sharded_stage(std::move(model), options, mesh, all.front().groups);
}

}  // namespace
}  // namespace heddle::fsdp2

HEDDLE_PLUGIN("fsdp2", "0.1.0") {
  plugin.strategy<heddle::fsdp2::Fsdp2>("fsdp2", heddle::fsdp2::schema());
}
