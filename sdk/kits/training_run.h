// TrainingRun, a training of the small model with one strategy, run by core or by a host's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"
#include "lib/testing/outcome.h"
#include "lib/testing/small_model.h"
#include "runs/ranks.h"

namespace heddle::kits {

// The strategy of a training run, and how to create it.
struct Subject {
  std::string name;
  Needs needs;
  std::function<std::unique_ptr<IStrategy>()> make;
  std::string fields = {};  // fields that differ from the given ones, for messages: " with {sync_every: 1}"
};

// The tensors of a rank at the end of a training run: its shards, then the state of its stages.
struct RankTensors {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  size_t shards = 0;  // number of shards among the tensors
};
// The tensors of all ranks, copied at the end of a training run.
struct Kept {
  std::mutex mutex;
  std::map<int, RankTensors> ranks;
};

struct TrainingRun {
  Shape shape = {};
  int dp = 1, replicas = 1, tp = 1, pp = 1;  // dp: number of ranks of dp_shard, or of dp
  // by_hand: a host's own loop without unshard(), reshard() and reduce_gradients(). The other values use
  // core's runner: one microbatch after the other, all forwards first, split backwards, or stages on several
  // ranks.
  enum class Drive { by_hand, one_by_one, forwards_first, split, pipeline } drive = Drive::one_by_one;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  // false: the update w -= g / 2, whose results show gradients. true: AdamW by core's Step, with norms and
  // states.
  bool adamw = false;
  int64_t first_step = 0, steps = 4;
  bool lists_all = false;  // checks that every rank lists every parameter
  bool evaluates = false;  // evaluates after each step, which must not affect the result
  bool unshards = false;   // calls hold_whole() after each step
  bool reloads = false;    // without adamw: writes, uses and takes back the initial values after each step
  bool restarts = false;   // with adamw and pp: every step begins with an update that is undone
  const Outcome* from = nullptr;  // with adamw: initial values and optimizer state
  Kept* keeps = nullptr;          // without adamw: gets copies of the ranks' tensors at the end
  Kept* resumes = nullptr;        // without adamw: the tensors with which the ranks begin
  std::shared_ptr<const IPipelineSchedule> schedule = nullptr;  // for Drive::pipeline; null: the kit's own
  const CheckDevice* device = nullptr;                          // the device of the training; null: the CPU
  bool values_differ = false;  // with foreign or valued: initial values differ between data-parallel ranks
  int world() const { return dp * replicas * tp * pp; }
};

bool has_axis(const Needs& needs, const std::string& axis);

// Returns why the strategy's needs exclude this training run, or "".
std::string refusal(const Subject& subject, const TrainingRun& training);

// Runs the training. Throws Error{plugin_failed} for a violation of the interface or an exception of the
// stage.
Outcome train(const Subject& subject, const TrainingRun& training);

// Returns the strategy `single`.
Subject single();

// Throws Error{plugin_failed} with the first difference.
void compare(const Outcome& got, const Outcome& want);

}  // namespace heddle::kits
