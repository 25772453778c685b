// The entry points of the engine: validate() checks a configuration, model() builds a model for a host's own
// loop, run() runs the loop, dry_step() predicts a step without memory for tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/config/node.h"
#include "heddle/config/setup.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/batch.h"
#include "heddle/model/family.h"
#include "heddle/ops/compute_log.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/plan.h"
#include "heddle/plugin/registry.h"
#include "heddle/train/step.h"

namespace heddle::engine {

// Treatment of sections of an axis of size 1, such as `moe:` with ep_size 1. checked: they are read, with a
// warning for settings without effect. dropped: they are ignored, as in NeMo AutoModel.
enum class IdleBlocks { checked, dropped };

// Resolves `distributed:` and `dist_env:` of a configuration for a world size, with the plugins that it
// names. Creates no tensor. Throws Error{config | mesh | plugin_*}.
HEDDLE_API Setup validate(const Node& configuration, PluginRegistry& plugins, int world_size,
                          IdleBlocks idle = IdleBlocks::checked);

// Returns one line of JSON, as `heddle check --json` prints it.
HEDDLE_API std::string to_json(const Setup& setup);
// Returns a block of lines for a person.
HEDDLE_API std::string to_text(const Setup& setup);

// Throws Error{not_built} at the field of the first line "a.b: why". Does nothing without lines.
HEDDLE_API void refuse_not_built(const Node& configuration, std::span<const std::string> lines);

// Chooses the strategy, the parallelizers and the schedule. Throws Error{not_built} at a field that is valid
// but not built yet.
HEDDLE_API Plan choose(const Setup& setup, PluginRegistry& plugins);

// Throws Error for a model that the parallelizers cannot split or that the plan cannot divide into stages. If
// batch_rows (rows of one batch) is not 0, also throws for a schedule that cannot run its microbatches. Does
// not modify the units.
HEDDLE_API void check_model(const Plan& plan, const Setup& setup, Units& units, int64_t batch_rows = 0);

// Returns the device of `dist_env.backend`, or null for the CPU ("gloo"). Without a backend, returns the
// first available device. Throws Error{config | plugin_missing} for a device that is not available.
HEDDLE_API std::unique_ptr<IDevice> choose_device(const Setup& setup, PluginRegistry& plugins);

// Returns lines "part: value" of the setup, the plugins and the ABI, which must be equal on every rank.
HEDDLE_API std::string fingerprint(const Setup& setup, const PluginRegistry& plugins,
                                   const std::string& extra);

// The result of model(). Members are destroyed in reverse order.
struct Model {
  Setup setup;
  std::unique_ptr<IDevice> device;         // null for the CPU
  std::unique_ptr<Rendezvous> rendezvous;  // the device's, which wraps the host's; null without a device
  DeviceMesh mesh;
  Stages stages;
};
// The host's arguments of model().
struct ModelHost {
  Rendezvous& rendezvous;
  std::function<Units(const Setup&)> make_units;
  ParameterSource source = {};  // initial values of parameters; may be empty
  uint64_t seed = 42;
  std::string fingerprint = {};  // further lines that must be equal on every rank; may be empty
  // Rows of one batch, or 0 if unknown. If known, an 'auto' pipeline schedule is searched before the first
  // step, and its table is part of the fingerprint. Rank 0 searches in any case and sends the table to all
  // ranks.
  int64_t batch_rows = 0;
};
// Builds this rank's model for a host with its own loop.
HEDDLE_API Model model(const Node& configuration, PluginRegistry& plugins, const ModelHost& host);
// Builds the model for a setup that validate() returned for this world size.
HEDDLE_API Model model(Setup setup, PluginRegistry& plugins, const ModelHost& host);

// Ends a healthy run. Called on every rank before the model is destroyed. Returns when the device of every
// rank has finished its work: if a rank destroyed its communicators earlier, it would break the collectives
// of other ranks. Does nothing on the CPU. Throws errors of the device.
HEDDLE_API void settle(Model& model);

// Returns the optimizer state as parts of a checkpoint, for saving and loading (sharded.h). Names are
// STATE.NAME: for AdamW "exp_avg.NAME", "exp_avg_sq.NAME", "step.NAME" and, with fp32 copies, "master.NAME".
// The tensors are the optimizer's own.
HEDDLE_API std::vector<checkpoint::Part> optimizer_parts(Step& step);

// The callbacks of run(). The engine runs the loop and settles the model at the end; the host provides
// batches and learning rates.
struct Rates {
  double lr, weight_decay;
};
// The host's arguments of run().
struct RunHost : ModelHost {
  StepConfig step = {};
  int64_t first_step = 0, steps = 0;  // runs steps in [first_step, steps)
  std::function<Rates(int64_t step)> rates = {};
  // Returns this rank's microbatches of a step, which stay valid until the next call. The engine sets
  // Batch::step.
  std::function<std::span<const Batch>(int64_t step, const DeviceMesh& mesh)> next_batches = {};
  // Called after each step on every rank, to log, to validate with `trained`, or to save. Returning false
  // ends the run.
  std::function<bool(int64_t step, const StepReport& report, Step& trained, Model& model)> after_step = {};
};
// Trains until all steps are done or after_step() returns false.
HEDDLE_API void run(const Node& configuration, PluginRegistry& plugins, RunHost& host);

// Reading models from a config.json.

// Returns the model that the keys of a config.json describe, read by the plugin that offers its model_type.
// Throws Error{config} at the key. For an unknown model_type the error lists the known ones and the search
// path.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const Node& keys, PluginRegistry& plugins,
                                                       UnknownKeys unknown = UnknownKeys::refused);

// Reads the model from a file. Throws Error{input}. Ignores unknown keys unless they resemble a known key.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json,
                                                       PluginRegistry& plugins);

// Predicting a step: runs one rank of a world of any size alone and without memory for tensors, and records
// what the rank would send, compute and allocate.

// The host's arguments of dry_step().
struct DryHost {
  int rank = 0, world_size = 1;
  std::function<Units(const Setup&)> make_units = {};  // makes units with parameters on meta
  StepConfig step = {};
  // Returns the rank's microbatches of a step, on the CPU or on meta.
  std::function<std::span<const Batch>(const DeviceMesh& mesh)> batches = {};
  IOptimizer* optimizer = nullptr;  // null for AdamW
  int64_t batch_rows = 0;           // see ModelHost::batch_rows
  // Whether to take the code path of a GPU: layers use every kernel of device_ops.h, and groups gather
  // several tensors in one call.
  bool kernels = false;
};

// The prediction of dry_step().
struct DryStep {
  DryLog start;            // collectives of building the model, in the order of the calls
  DryLog step;             // collectives of one step
  int64_t parameters = 0;  // elements in the shards of this rank
  int64_t bytes = 0;       // bytes of these elements as the strategy stores them
  int peak_alive = 0;      // maximum number of microbatches alive at once, over the rank's stages
  // Operators and allocations from the first unit on. An optimizer update is one operator, "heddle::update".
  // Document boundaries are unknown, so attention covers whole rows.
  ComputeLog computed;
  Recording recording;                             // actions and phases of the step with their time stamps
  std::map<std::string, std::vector<int>> groups;  // ranks of this rank's groups, by group name
  int64_t begin = 0;                               // time stamp in `computed` at which the step began
};

// Does what run() does with the same plugins, strategy and schedule, for one step. Uses no device, whatever
// dist_env.backend says, and reads no files and no values. Throws the errors of a run before its first step.
HEDDLE_API DryStep dry_step(const Node& configuration, PluginRegistry& plugins, const DryHost& host);
// Predicts a step for a setup that validate() returned for host.world_size ranks.
HEDDLE_API DryStep dry_step(Setup setup, PluginRegistry& plugins, const DryHost& host);

}  // namespace heddle::engine
