// The flow of a run in a world of its own.
#include <memory>
#include <utility>

#include "heddle/engine/engine.h"
#include "heddle/nn/device_ops.h"

namespace heddle::engine {

DryStep dry_step(const Node& configuration, PluginRegistry& plugins, const DryHost& host) {
  return dry_step(validate(configuration, plugins, host.world_size), plugins, host);
}

// The run's device may be none of this machine's.
DryStep dry_step(Setup setup, PluginRegistry& plugins, const DryHost& host) {
  setup.backend = "gloo";
  const ComputeRecorder recorder;
  const auto kernels = host.kernels ? std::make_unique<model::MetaKernels>() : nullptr;
  DryRank world(host.rank, host.world_size);
  if (host.kernels) world.gather_as_a_gpu();
  Model built =
      model(std::move(setup), plugins,
            {world, host.make_units, /*source=*/{}, /*seed=*/0, /*fingerprint=*/{}, host.batch_rows});
  DryStep out;
  for (const Shard* shard : built.stages.shards()) {
    out.parameters += shard->tensor.numel();
    out.bytes += static_cast<int64_t>(shard->tensor.nbytes());
  }
  const auto adamw = train::make_adamw(host.step.optimizer);
  Step step(built.stages, built.mesh, host.step, host.optimizer == nullptr ? *adamw : *host.optimizer);
  out.start = world.entries();
  out.begin = recorder.moment();
  step.record(&out.recording);
  step.run(host.batches(built.mesh), /*lr=*/0, /*weight_decay=*/0);
  out.step.assign(world.entries().begin() + static_cast<std::ptrdiff_t>(out.start.size()),
                  world.entries().end());
  out.groups = world.groups();
  out.peak_alive = step.peak_alive();
  out.computed = recorder.log();
  return out;
}

}  // namespace heddle::engine
