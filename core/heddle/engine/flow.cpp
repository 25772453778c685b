// The whole road, top to bottom: each line takes what the lines above made, and no line looks back.
#include "heddle/engine/engine.h"

namespace heddle::engine {

Model model(const Node& configuration, PluginRegistry& plugins, const ModelHost& host) {
  Setup setup = validate(configuration, plugins, host.meeting.world_size());  // tree  -> checked words
  const Plan plan = choose(setup, plugins);                                   // words -> plugins that agree
  DeviceMesh mesh = mesh::build(setup.axes, host.meeting, fingerprint(setup, plugins, host.fingerprint));
  Stages stages =
      parallel::build(host.make_units(setup), plan, mesh, host.source, host.seed);  // units -> stages
  return {std::move(setup), std::move(mesh), std::move(stages)};
}

void run(const Node& configuration, PluginRegistry& plugins, RunHost& host) {
  Model built = model(configuration, plugins, host);
  Step step(built.stages, built.mesh, host.step);  // stages -> one optimizer step
  for (int64_t at = host.first_step; at < host.steps; ++at) {
    const Rates rates = host.rates(at);
    const StepReport report = step.run(host.next_batches(at, built.mesh), rates.lr, rates.weight_decay);
    if (!host.after_step(at, report, step, built)) break;
  }
}

}  // namespace heddle::engine
