// Requirements of DDP, and creation of its stage.
#include "strategy.h"

#include <algorithm>
#include <utility>

#include "stage.h"

namespace heddle::ddp {

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

}  // namespace heddle::ddp
