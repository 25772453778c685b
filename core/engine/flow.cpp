// model() builds the model of a rank, top to bottom: each line takes the results of the lines above.
// choose() makes the objects of plugins, but not the optimizer, which a host makes; parallel::build() calls
// IStrategy::parallelize() for each stage. run() is a training loop for hosts without their own; heddle train
// has its loop in lib/run/loop/run.cpp.
#include "core/engine/pipeline.h"
#include "heddle/engine/engine.h"

#include <c10/core/DeviceType.h>

#include <utility>

namespace heddle::engine {
namespace {

// Null: the host's rendezvous serves, on the CPU or in a dry world.
std::unique_ptr<Rendezvous> start(IDevice* device, Rendezvous& host) {
  if (device == nullptr || host.device().is_meta()) return nullptr;
  device->start(host.local_rank());
  return device->wrap(host);
}

// A rank that found no GPU is named instead of waited for.
std::string device_line(const Rendezvous& rendezvous) {
  return "device: " + c10::DeviceTypeName(rendezvous.device().type(), /*lower_case=*/true) + "\n";
}

}  // namespace

// For hosts without a preflight; heddle train has one, and calls the overload below.
Model model(const Node& configuration, PluginRegistry& plugins, const ModelHost& host) {
  Setup setup = validate(configuration, plugins, host.rendezvous.world_size());  // tree -> checked fields
  return model(std::move(setup), plugins, host);
}

Model model(Setup setup, PluginRegistry& plugins, const ModelHost& host) {
  Plan plan = choose(setup, plugins);    // fields -> objects of the plugins, which agree
  Units units = host.make_units(setup);  // setup  -> the whole model
  check_model(plan, setup, units);       // the last step that ranks do alone
  std::unique_ptr<Rendezvous> own = start(plan.device.get(), host.rendezvous);  // a device -> its rendezvous
  Rendezvous& rendezvous = own ? *own : host.rendezvous;
  const std::string table = agree_on_table(plan, setup, units, rendezvous, host.batch_rows);  // rank 0 -> all
  DeviceMesh mesh = mesh::build(
      setup.axes, rendezvous,
      fingerprint(setup, plugins, device_line(rendezvous) + table_lines(plan) + table + host.fingerprint),
      setup.views, setup.axis_table);                                                     // -> ranks
  Stages stages = parallel::build(std::move(units), plan, mesh, host.source, host.seed);  // units -> stages
  return {std::move(setup), std::move(plan.device), std::move(own), std::move(mesh), std::move(stages)};
}

void settle(Model& model) {
  if (!model.device) return;
  model.device->synchronize();
  model.mesh.rendezvous().barrier("the end of the devices' work");
}

void run(const Node& configuration, PluginRegistry& plugins, RunHost& host) {
  Model built = model(configuration, plugins, host);
  Step step(built.stages, built.mesh, host.step);  // stages -> one optimizer step
  std::vector<Batch> batches;
  for (int64_t at = host.first_step; at < host.steps; ++at) {
    const Rates rates = host.rates(at);
    const std::span<const Batch> given = host.next_batches(at, built.mesh);
    batches.assign(given.begin(), given.end());
    for (Batch& batch : batches) batch.step = at;
    const StepReport report = step.run(batches, rates.lr, rates.weight_decay);
    if (!host.after_step(at, report, step, built)) break;
  }
  settle(built);
}

}  // namespace heddle::engine
