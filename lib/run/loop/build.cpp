// What every run does before its first step.
#include "lib/run/loop/build.h"

#include <iostream>
#include <vector>

#include "lib/cost/model_size.h"
#include "lib/data/tokens/token_check.h"
#include "lib/run/loop/shared_directories.h"
#include "lib/run/metrics/banner.h"

namespace heddle {

engine::Model build_model(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous,
                          WholeModel& whole) {
  check_shared_directories(run, rendezvous);
  if (rendezvous.rank() == 0 && run.size) std::cout << banner(run, *run.size) << std::flush;
  const auto make_units = [&](const Setup&) {
    Units units = run.model.make();
    whole = whole_model(units, run.model.packed(), run.model.of_other_models());
    return units;
  };
  const auto seed = static_cast<uint64_t>(run.recipe.seed);
  return engine::model(run.setup, plugins,
                       {rendezvous, make_units, run.model.values(seed), seed, fingerprint(run),
                        run.recipe.steps.local_batch_size});
}

BatchSplit split_of(const RunSpec& run, const DeviceMesh& mesh) {
  return {run.recipe.steps.local_batch_size, mesh.size("dp"), mesh.rank("dp")};
}

StepOfBatch step_of(const RunSpec& run, const WholeModel& whole, const StepInfo& info) {
  StepOfBatch out{info.step};
  if (whole.draws) out.draw_seed = static_cast<uint64_t>(run.recipe.seed);
  return out;
}

void check_vocabulary(const RunSpec& run) {
  std::vector<const Rows*> datasets{&run.dataset};
  for (const ValidationSet& set : run.validation) datasets.push_back(&set.dataset);
  const CheckpointSection& section = run.recipe.checkpoint;
  const std::filesystem::path notes =
      section.enabled ? std::filesystem::path(section.directory) / kTokenNotes : "";
  check_tokens(datasets, run.model.spec->facts().vocabulary, notes);
}

void show_header(const RunSpec& run, const ModelSize& size, const engine::Model& model,
                 const ModelFlops& flops, int local_ranks) {
  if (!run.size) std::cout << banner(run, size);
  if (size.copies > 0)
    std::cout << "  saving  copies to save from " << bytes_text(size.copies) << " a rank\n";
  std::cout << device_text(model, local_ranks);
  std::cout << "  speed   " << flops.text() << "\n" << std::flush;
  for (const std::string& text : warnings(run, size, model)) std::cerr << "warning: " << text << std::endl;
}

}  // namespace heddle
