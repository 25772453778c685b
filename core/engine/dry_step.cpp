// The flow of a run in a world of its own.
#include "heddle/engine/engine.h"

#include <utility>

namespace heddle::engine {

// The run's device may be none of this machine's.
DryStep dry_step(const Node& given, PluginRegistry& plugins, const DryHost& host) {
  const Node configuration = config::with_override(given, "dist_env.backend", "gloo");
  DryRank world(host.rank, host.world_size);
  Model built =
      model(configuration, plugins, {world, host.make_units, /*source=*/{}, /*seed=*/0, /*fingerprint=*/{}});
  DryStep out;
  for (const Shard* shard : built.stages.shards()) {
    out.parameters += shard->tensor.numel();
    out.bytes += static_cast<int64_t>(shard->tensor.nbytes());
  }
  Step step(built.stages, built.mesh, host.step);
  out.start = world.entries();
  step.run(host.batches(built.mesh), /*lr=*/0, /*weight_decay=*/0);
  out.step.assign(world.entries().begin() + static_cast<std::ptrdiff_t>(out.start.size()),
                  world.entries().end());
  out.peak_alive = step.peak_alive();
  return out;
}

}  // namespace heddle::engine
