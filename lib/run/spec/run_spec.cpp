// Fingerprint of a run, which all ranks must share.
#include "lib/run/spec/run_spec.h"

#include <mutex>
#include <optional>

#include "core/mesh/layout.h"

namespace heddle {

SampleOrder order_of(const RunSpec& run, int64_t epoch) {
  const std::lock_guard lock(run.order->mutex);
  std::optional<SampleOrder>& last = run.order->last;
  if (!last || run.order->epoch != epoch)
    last.emplace(run.dataset.size(), run.shuffle, static_cast<uint64_t>(run.recipe.seed), epoch);
  run.order->epoch = epoch;
  return *last;
}

std::filesystem::path default_metrics(const CheckpointSection& section) {
  return std::filesystem::path(section.directory) / "training.jsonl";
}

std::string fingerprint(const RunSpec& run) {
  std::string lines;
  const Node others = run.recipe.configuration.without("plugins").without("distributed");
  for (const auto& [key, value] : others.entries()) lines += key + ": " + config::to_json(value) + "\n";
  const auto add_settings = [&lines](const std::string& section, const Rows& dataset) {
    for (const auto& [key, value] : dataset.samples().settings())
      lines += std::string(mesh::kFilePart) + section + " (" + key + "): " + value + "\n";
  };
  add_settings("dataset", run.dataset);
  for (const ValidationSet& set : run.validation)
    add_settings("validation_dataset" + (set.name.empty() ? "" : "_" + set.name), set.dataset);
  for (const auto& [name, digest] : run.files)
    lines += std::string(mesh::kFilePart) + name + ": " + digest + "\n";
  if (!run.trace.file.empty())
    lines += "--trace: " + std::to_string(run.trace.first_step + 1) + ", " + std::to_string(run.trace.steps) +
             " steps\n";
  return lines;
}

}  // namespace heddle
