// Fills model and optimizer from the boxes of a checkpoint.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/saved_parts.h"

namespace heddle {
namespace {

using checkpoint::Part;

constexpr const char* kBeginAnew =
    ", or start a new run: set model.pretrained_model_name_or_path to this checkpoint and "
    "checkpoint.checkpoint_dir to another directory";

// Checks that a part belongs to this checkpoint: a part copied from another one is valid by itself.
void check_part(const Resume& resume, const std::string& name, const checkpoint::ShardedReader& reader) {
  const auto wanted = resume.position.parts.find(name);
  if (wanted != resume.position.parts.end() && wanted->second == reader.manifest().sum) return;
  throw Error(ErrorCode::input, (resume.directory / name / checkpoint::kManifest).string(),
              std::string("belongs to another checkpoint than the ") + kPositionFile + " next to it",
              "copy the whole checkpoint again, or resume from another");
}

std::string optimizer_of(const std::map<std::string, std::string>& settings) {
  const auto found = settings.find("optimizer._target_");
  return found == settings.end() ? "AdamW" : found->second;
}

// Throws for a checkpoint of the same optimizer: the trained parameters or the names of the state differ.
[[noreturn]] void refuse_other_state(const Resume& resume, const std::string& of, const std::string& state,
                                     const checkpoint::ShardedReader& states) {
  const std::string parameter = state.substr(state.find('.') + 1);
  const auto& saved = states.manifest().tensors;
  const bool is_renamed = std::any_of(saved.begin(), saved.end(), [&](const auto& one) {
    return !one.first.starts_with("master.") && !one.first.starts_with(kOwnPrefix) &&
           one.first.substr(one.first.find('.') + 1) == parameter;
  });
  throw Error(
      ErrorCode::input, (resume.directory / "optim").string(),
      "holds no '" + state + "': " +
          (is_renamed ? of + " saved different state of " + parameter + " than it needs now"
                      : "the run that saved it did not train " + parameter + ", and this one does"),
      (is_renamed ? "resume with the version of the plugin that saved it"
                  : "restore the settings that select the trained parameters (sections such as peft and "
                    "freeze_config)") +
          std::string(kBeginAnew));
}

// Checks the optimizer state. Master copies may be missing, because the saved run may have kept none.
void check_optimizer(const RunSpec& run, const std::string& state, const checkpoint::ShardedReader& states) {
  if (states.has(state)) return;
  const Resume& resume = *run.resume;
  const std::string of = optimizer_of(resume.position.settings);
  if (of == optimizer_of(run.settings)) refuse_other_state(resume, of, state, states);
  throw Error(ErrorCode::input, (resume.directory / "optim").string(),
              "was saved by the optimizer " + of + " and holds no '" + state + "'",
              "set optimizer._target_ to " + of + kBeginAnew);
}

// Returns a shape as text: "[2, 7, 3]".
std::string written(const std::vector<int64_t>& sizes) {
  std::vector<std::string> out;
  for (const int64_t size : sizes) out.push_back(std::to_string(size));
  return "[" + text::join(out) + "]";
}

// Reads a tensor that may differ between ranks along `differs`. A tensor that was saved per rank is read only
// by the same number of ranks, any other tensor by any number.
void read_as_saved(const RunSpec& run, const DeviceMesh& mesh, std::span<const std::string> differs,
                   const Part& part, checkpoint::ShardedReader& states) {
  const std::vector<int64_t>& saved = states.manifest().tensors.at(part.name).shape;
  const bool own = saved.size() == part.shape.size() + 1;
  Part wanted = own && !differs.empty() ? part_of_rank(mesh, differs, part) : part;
  if (wanted.shape != saved && own)
    throw Error(
        ErrorCode::input, (run.resume->directory / "optim").string(),
        "holds different values of '" + part.name + "' for each of " + std::to_string(saved.front()) +
            " ranks, but this run has " +
            (differs.empty() ? "equal values on all ranks"
                             : std::to_string(wanted.shape.front()) + " ranks along " + differs.front()),
        "resume with the strategy and the number of ranks that saved it" + std::string(kBeginAnew));
  states.read(wanted);
}

// Reads the state of the strategy. Returns false if the checkpoint has none of it, because another strategy
// saved it, so that the state starts anew.
bool read_strategy(const RunSpec& run, engine::Model& model, checkpoint::ShardedReader& states) {
  const std::vector<Part> parts = checkpoint::strategy_parts(model.stages);
  const auto has = [&](const Part& part) { return states.has(part.name); };
  if (std::none_of(parts.begin(), parts.end(), has)) return parts.empty();
  const std::string hint = "resume with the number of ranks and the fields of the strategy that saved it";
  for (const Part& part : parts) {
    const std::string where = (run.resume->directory / "optim").string();
    if (!has(part))
      throw Error(ErrorCode::input, where,
                  "holds no '" + part.name + "', which is part of the strategy's state", hint + kBeginAnew);
    const std::vector<int64_t>& saved = states.manifest().tensors.at(part.name).shape;
    if (saved != part.shape)
      throw Error(ErrorCode::input, where,
                  "holds '" + part.name + "' with the shape " + written(saved) + ", but this run needs " +
                      written(part.shape),
                  hint + kBeginAnew);
    states.read(part);
  }
  return true;
}

// Reads a parameter from the most precise values of the checkpoint: its master copy, this rank's own values,
// or the model.
void read_shard(const RunSpec& run, const DeviceMesh& mesh, const Shard& shard,
                checkpoint::ShardedReader& weights, checkpoint::ShardedReader& states) {
  Part part = checkpoint::part_of(shard, shard.tensor.detach());
  const std::string master = "master." + part.name, own = kOwnPrefix + part.name;
  const bool finer = part.tensor.scalar_type() == at::kFloat && states.has(master);
  if (!finer && (shard.differs.empty() || !states.has(own))) return weights.read(part);
  part.name = finer ? master : own;
  read_as_saved(run, mesh, shard.differs, part, states);
}

}  // namespace

// Fills model and optimizer. If only one of the two runs keeps master copies, the values come from the most
// precise copy in the checkpoint.
void restore(const RunSpec& run, engine::Model& model, Step& step) {
  const Resume& resume = *run.resume;
  bool resumed = true;
  checkpoint::on_every_rank(model.mesh.rendezvous(), "restore/" + resume.directory.filename().string(), [&] {
    at::NoGradGuard no_gradients;
    checkpoint::ShardedReader weights(resume.directory / "model"), states(resume.directory / "optim");
    check_part(resume, "model", weights);
    check_part(resume, "optim", states);
    for (const Shard* shard : saved_shards(run, model.stages))
      read_shard(run, model.mesh, *shard, weights, states);
    for (const OptimizerState& state : step.optimizer_state())
      for (const StateTensor& one : state.tensors) {
        Part part{one.name + "." + state.shard->name, one.tensor, one.shape, one.offset};
        if (one.name != "master" || states.has(part.name)) {
          check_optimizer(run, part.name, states);
          read_as_saved(run, model.mesh, state.shard->differs, part, states);
          continue;
        }
        part.name = state.shard->name;
        const std::string own = kOwnPrefix + part.name;
        const bool differs = !state.shard->differs.empty() && states.has(own);
        if (differs) part.name = own;
        if (differs)
          read_as_saved(run, model.mesh, state.shard->differs, part, states);
        else
          weights.read(part);
      }
    resumed = read_strategy(run, model, states);
  });
  for (const auto& stage : model.stages)
    stage->parameters_changed(resumed ? ParametersChange::resumed : ParametersChange::begun);
}

}  // namespace heddle
