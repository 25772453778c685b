// Model and optimizer as boxes, and filling them from the boxes of a checkpoint.
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
    ", or begin a new run: model.pretrained_model_name_or_path names this checkpoint, and "
    "checkpoint.checkpoint_dir another directory";

// A directory that was copied out of another checkpoint is whole in itself.
void check_part(const Resume& resume, const std::string& name, const checkpoint::ShardedReader& reader) {
  const auto wanted = resume.position.parts.find(name);
  if (wanted != resume.position.parts.end() && wanted->second == reader.manifest().sum) return;
  throw Error(ErrorCode::input, (resume.directory / name / checkpoint::kManifest).string(),
              std::string("is of another checkpoint than the ") + kPositionFile + " beside it",
              "copy the whole checkpoint again, or resume from another");
}

std::string optimizer_of(const std::map<std::string, std::string>& settings) {
  const auto found = settings.find("optimizer._target_");
  return found == settings.end() ? "AdamW" : found->second;
}

// Of the optimizer that the run has as well: the parameters that train are others, or the names of its state.
[[noreturn]] void refuse_other_state(const Resume& resume, const std::string& of, const std::string& state,
                                     const checkpoint::ShardedReader& states) {
  const std::string parameter = state.substr(state.find('.') + 1);
  const auto& saved = states.manifest().tensors;
  const bool is_renamed = std::any_of(saved.begin(), saved.end(), [&](const auto& one) {
    return !one.first.starts_with("master.") && one.first.substr(one.first.find('.') + 1) == parameter;
  });
  throw Error(ErrorCode::input, (resume.directory / "optim").string(),
              "holds no '" + state + "': " +
                  (is_renamed ? of + " saved other states of " + parameter + " than it asks for now"
                              : "the run that saved it did not train " + parameter + ", and this one does"),
              (is_renamed ? "resume with the version of the plugin that saved it"
                          : "set what chooses the parameters that train (sections such as peft and "
                            "freeze_config) as it was") +
                  std::string(kBeginAnew));
}

// Master copies may be missing, as another run kept none.
void check_optimizer(const RunSpec& run, const std::string& state, const checkpoint::ShardedReader& states) {
  if (states.has(state)) return;
  const Resume& resume = *run.resume;
  const std::string of = optimizer_of(resume.position.settings);
  if (of == optimizer_of(run.settings)) refuse_other_state(resume, of, state, states);
  throw Error(ErrorCode::input, (resume.directory / "optim").string(),
              "was saved by the optimizer " + of + " and holds no '" + state + "'",
              "set optimizer._target_ to " + of + kBeginAnew);
}

// "[2, 7, 3]".
std::string written(const std::vector<int64_t>& sizes) {
  std::vector<std::string> out;
  for (const int64_t size : sizes) out.push_back(std::to_string(size));
  return "[" + text::join(out) + "]";
}

// What ranks hold of their own is read by as many ranks; what they hold alike, by any.
void read_as_saved(const RunSpec& run, const DeviceMesh& mesh, std::span<const std::string> differs,
                   const Part& part, checkpoint::ShardedReader& states) {
  const std::vector<int64_t>& saved = states.manifest().tensors.at(part.name).shape;
  const bool own = saved.size() == part.shape.size() + 1;
  Part wanted = own && !differs.empty() ? part_of_rank(mesh, differs, part) : part;
  if (wanted.shape != saved && own)
    throw Error(
        ErrorCode::input, (run.resume->directory / "optim").string(),
        "holds '" + part.name + "' of " + std::to_string(saved.front()) +
            " ranks that have other values of it each, and this run has " +
            (differs.empty() ? "ranks with the same values"
                             : std::to_string(wanted.shape.front()) + " ranks along " + differs.front()),
        "resume with the strategy and the number of ranks that saved it" + std::string(kBeginAnew));
  states.read(wanted);
}

// The state of a strategy that the run has too; false: another one saved the checkpoint, and it begins anew.
bool read_strategy(const RunSpec& run, engine::Model& model, checkpoint::ShardedReader& states) {
  const std::vector<Part> parts = checkpoint::strategy_parts(model.stages);
  const auto has = [&](const Part& part) { return states.has(part.name); };
  if (std::none_of(parts.begin(), parts.end(), has)) return parts.empty();
  const std::string hint = "resume with the number of ranks and the fields of the strategy that saved it";
  for (const Part& part : parts) {
    const std::string where = (run.resume->directory / "optim").string();
    if (!has(part))
      throw Error(ErrorCode::input, where, "holds no '" + part.name + "', which the strategy keeps",
                  hint + kBeginAnew);
    const std::vector<int64_t>& saved = states.manifest().tensors.at(part.name).shape;
    if (saved != part.shape)
      throw Error(ErrorCode::input, where,
                  "holds '" + part.name + "' of the shape " + written(saved) + ", and this run has " +
                      written(part.shape),
                  hint + kBeginAnew);
    states.read(part);
  }
  return true;
}

// A parameter comes from the finest values that there are.
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

// A run that keeps no master copies where the saved one did, or the other way round, resumes from the finest
// values that there are.
void restore(const RunSpec& run, engine::Model& model, Step& step) {
  const Resume& resume = *run.resume;
  bool resumed = true;
  checkpoint::together(model.mesh.rendezvous(), "restore/" + resume.directory.filename().string(), [&] {
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
