// Fills model and optimizer from the boxes of a checkpoint.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <string>

#include "heddle/base/error.h"
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
    return !one.first.starts_with("master.") && one.first.substr(one.first.find('.') + 1) == parameter;
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

}  // namespace

// Fills model and optimizer. If only one of the two runs keeps master copies, the values come from the most
// precise copy in the checkpoint.
void restore(const RunSpec& run, engine::Model& model, Step& step) {
  const Resume& resume = *run.resume;
  checkpoint::together(model.mesh.rendezvous(), "restore/" + resume.directory.filename().string(), [&] {
    at::NoGradGuard no_gradients;
    checkpoint::ShardedReader weights(resume.directory / "model"), states(resume.directory / "optim");
    check_part(resume, "model", weights);
    check_part(resume, "optim", states);
    for (Part& part : saved_parts(run, model.stages)) {
      const std::string master = "master." + part.name;
      const bool finer = part.tensor.scalar_type() == at::kFloat && states.has(master);
      if (finer) part.name = master;
      (finer ? states : weights).read(part);
    }
    for (Part& part : optimizer_parts(step)) {
      const bool master = part.name.starts_with("master.");
      if (!master || states.has(part.name)) {
        check_optimizer(run, part.name, states);
        states.read(part);
      } else {
        part.name = part.name.substr(7);
        weights.read(part);
      }
    }
  });
  for (const auto& stage : model.stages) stage->parameters_changed();
}

}  // namespace heddle
