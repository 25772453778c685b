// The three entry points of the engine: validate (fields only), model (stages and mesh, for a host's own
// loop), run.
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

// What becomes of blocks whose size is 1, such as `moe:` with ep_size 1: read and checked, with a warning for
// what has no effect; or dropped unread, as by NeMo AutoModel.
enum class IdleBlocks { checked, dropped };

// Reads `distributed:` and `dist_env:` of a whole configuration against a world size, with the plugins that
// it names. Makes no tensor. Throws Error{config | mesh | plugin_*}.
HEDDLE_API Setup validate(const Node& configuration, PluginRegistry& plugins, int world_size,
                          IdleBlocks idle = IdleBlocks::checked);

// One JSON object on one line, as `heddle check --json` prints it.
HEDDLE_API std::string to_json(const Setup& setup);
// The same for a person: a block of lines.
HEDDLE_API std::string to_text(const Setup& setup);

// Throws Error{not_built} at the place of the first of the lines "a.b: why"; nothing when there are none.
HEDDLE_API void refuse_not_built(const Node& configuration, std::span<const std::string> lines);

// Throws Error{not_built} for what is valid but not built yet, naming the field.
HEDDLE_API Plan choose(const Setup& setup, PluginRegistry& plugins);

// Throws Error for a model that the parallelizers cannot split or the plan cannot cut into stages, and, given
// `batch_rows` (the rows of one batch; 0: not known yet), for a schedule that cannot run its microbatches.
// Changes nothing.
HEDDLE_API void check_model(const Plan& plan, const Setup& setup, Units& units, int64_t batch_rows = 0);

// The device of `dist_env.backend`; null for the CPU. gloo is the CPU; null takes the first available device,
// else the CPU. Throws Error{config | plugin_missing} for a device that is not available.
HEDDLE_API std::unique_ptr<IDevice> choose_device(const Setup& setup, PluginRegistry& plugins);

// The setup, the plugins and the ABI as lines "part: value", which must agree on every rank.
HEDDLE_API std::string fingerprint(const Setup& setup, const PluginRegistry& plugins,
                                   const std::string& more);

// The second entry point: for a host with its own loop. Members are destroyed in reverse order.
struct Model {
  Setup setup;
  std::unique_ptr<IDevice> device;         // null: the CPU
  std::unique_ptr<Rendezvous> rendezvous;  // the device's, around the host's; null: the host's own
  DeviceMesh mesh;
  Stages stages;
};
struct ModelHost {
  Rendezvous& rendezvous;
  std::function<Units(const Setup&)> make_units;
  ParameterSource source = {};  // may be empty
  uint64_t seed = 42;
  std::string fingerprint = {};  // more lines that must agree on every rank; may be empty
  // The rows of one batch, if known: a pipeline schedule that is searched ('auto') is then searched before
  // the first step, and its table is in the fingerprint. Rank 0 searches in any case, all ranks get its
  // table.
  int64_t batch_rows = 0;
};
HEDDLE_API Model model(const Node& configuration, PluginRegistry& plugins, const ModelHost& host);
// The same for a setup that validate() has given for this world.
HEDDLE_API Model model(Setup setup, PluginRegistry& plugins, const ModelHost& host);

// Ends a healthy run; called on every rank before the model is destroyed. Returns when every rank's device
// has finished its work: a host runs ahead of its device, and a rank that destroyed its communicators early
// would break the others' collectives. Does nothing on the CPU. Throws errors of the device.
HEDDLE_API void settle(Model& model);

// The state of the optimizer as parts of a checkpoint, for saving and for reading back (sharded.h),
// STATE.NAME each: of AdamW "exp_avg.NAME", "exp_avg_sq.NAME" and "step.NAME" and, where there are fp32
// copies, "master.NAME". The tensors are the optimizer's own.
HEDDLE_API std::vector<checkpoint::Part> optimizer_parts(Step& step);

// The third entry point: the engine runs the loop and settles the model at its end; the host provides batches
// and rates and is called after each step.
struct Rates {
  double lr, weight_decay;
};
struct RunHost : ModelHost {
  StepConfig step = {};
  int64_t first_step = 0, steps = 0;  // runs the steps [first_step, steps)
  std::function<Rates(int64_t step)> rates = {};
  // This rank's microbatches of a step; they stay valid until the next call. Batch::step is filled.
  std::function<std::span<const Batch>(int64_t step, const DeviceMesh& mesh)> next_batches = {};
  // After each step, on every rank: log, validate with `trained`, save. False ends the run.
  std::function<bool(int64_t step, const StepReport& report, Step& trained, Model& model)> after_step = {};
};
HEDDLE_API void run(const Node& configuration, PluginRegistry& plugins, RunHost& host);

// Models by their config.json, through the plugins.

// The model that these keys of a config.json describe, read by the plugin that offers its model_type. Throws
// Error{config} at the key; also for a model_type that no plugin offers, with the list of those offered and
// the search path.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const Node& keys, PluginRegistry& plugins,
                                                       UnknownKeys unknown = UnknownKeys::refused);

// The same from a file; throws Error{input}. Unknown keys are ignored unless they resemble a known one.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json,
                                                       PluginRegistry& plugins);

// One step of one rank of a world of any size, run alone and without memory for tensors: what the rank would
// send, compute and hold.

struct DryHost {
  int rank = 0, world_size = 1;
  std::function<Units(const Setup&)> make_units = {};  // with parameters on meta
  StepConfig step = {};
  // The rank's microbatches of a step, on the CPU or on meta.
  std::function<std::span<const Batch>(const DeviceMesh& mesh)> batches = {};
  IOptimizer* optimizer = nullptr;  // null: AdamW
  int64_t batch_rows = 0;           // as in ModelHost
  // The step takes the path of a GPU: layers compute with every kernel of device_ops.h, and groups gather
  // several tensors in one call.
  bool kernels = false;
};

struct DryStep {
  DryLog start;            // the collectives of building the model, in the order of the calls
  DryLog step;             // those of one step
  int64_t parameters = 0;  // elements of the shards that the rank owns
  int64_t bytes = 0;       // of these, as the strategy stores them
  int peak_alive = 0;      // the most microbatches that were alive at once, over the rank's stages
  // Operators and allocations from the first unit on. An update is one call, "heddle::update". Documents are
  // not known: attention sees whole rows.
  ComputeLog computed;
  Recording recording;                             // the step's actions and phases, with their moments
  std::map<std::string, std::vector<int>> groups;  // the ranks of this rank's groups, by their names
  int64_t begin = 0;                               // the moment of `computed` at which the step began
};

// Does what run() does: the same plugins, strategy and schedule, one step. No device is asked for, whatever
// dist_env.backend says, and no file and no value is read. Throws what a run would throw before its first
// step.
HEDDLE_API DryStep dry_step(const Node& configuration, PluginRegistry& plugins, const DryHost& host);
// The same for a setup that validate() has given for a world of host.world_size.
HEDDLE_API DryStep dry_step(Setup setup, PluginRegistry& plugins, const DryHost& host);

}  // namespace heddle::engine
