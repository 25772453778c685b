// Data parallelism with whole parameters on every rank, modeled on PyTorch's DistributedDataParallel (Li et
// al. 2020).
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"
#include "heddle/sdk.h"
#include "stage.h"

namespace heddle::ddp {
namespace {

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

// Every data-parallel rank holds the whole model in its storage dtype, except that it holds its part of a
// parameter that a parallelizer split. Gradients are summed in buckets during the backward, each over its
// parameter's reduction.
class Ddp : public IStrategy {
 public:
  explicit Ddp(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{input} for a parameter of a foreign unit that cannot be tied.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

Needs Ddp::needs() const {
  Needs needs;
  needs.axes = {"pp", "dp", "tp"};
  needs.axes_when_used = {"pp", "tp"};
  needs.may_use = {"selective_activation_checkpointing", "reductions", "post_validation"};
  needs.refuses = {{"cp", "ddp does not support context parallelism"}};
  return needs;
}

std::unique_ptr<ParallelStage> Ddp::parallelize(Units units, const DeviceMesh& mesh,
                                                std::span<const Placed> placed) {
  constexpr double kMiB = 1 << 20, kLargestBucket = 1 << 30;  // larger than any bucket
  Options options;
  if (config_.bucket_cap_mb)
    options.first_bucket_bytes = options.bucket_bytes =
        static_cast<int64_t>(std::min(*config_.bucket_cap_mb, kLargestBucket) * kMiB);
  options.add_into_buckets = config_.gradient_as_bucket_view;
  options.find_unused = config_.find_unused_parameters;
  options.static_graph = config_.static_graph;
  const Buffers buffers = config_.broadcast_buffers ? Buffers::from_rank_0 : Buffers::stay;
  std::optional<at::ScalarType> autocast;
  if (!config_.autocast_dtype.word.empty())
    autocast = config_.autocast_dtype.word == "bfloat16" ? at::kBFloat16 : at::kHalf;
  return std::make_unique<DdpStage>(std::move(units), placed, mesh, options, buffers, autocast);
}

}  // namespace
}  // namespace heddle::ddp

HEDDLE_PLUGIN("ddp", "0.1.0") {
  plugin.strategy<heddle::ddp::Ddp>("ddp", heddle::ddp::schema());
}
