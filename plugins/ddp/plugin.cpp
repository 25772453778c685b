// Data parallelism with whole parameters on every rank, modeled on PyTorch's DistributedDataParallel (Li et
// al. 2020).
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "config.h"
#include "heddle/sdk.h"
#include "stage.h"

namespace heddle::ddp {
namespace {

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
