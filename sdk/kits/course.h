// A course: a training of the small model under one strategy, driven by core or by a host's loop.
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

// The strategy of a course and its configuration.
struct Subject {
  std::string name;
  Needs needs;
  std::function<std::unique_ptr<IStrategy>()> make;
  std::string fields = {};  // for messages: " with {sync_every: 1}"; empty: the given ones
};

// What a rank holds at the end of a course: its shards and what its stages keep.
struct RankTensors {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  size_t shards = 0;  // so many of them are shards
};
struct Kept {
  std::mutex mutex;
  std::map<int, RankTensors> ranks;
};

struct Course {
  Shape shape = {};
  int dp = 1, replicas = 1, tp = 1, pp = 1;  // dp: ranks of dp_shard, or of dp
  // by_hand: a host's own loop, without unshard, reshard and reduce_gradients. The others: core's runner,
  // with all forwards first, split backwards, or stages on several ranks.
  enum class Drive { by_hand, one_by_one, forwards_first, split, pipeline } drive = Drive::one_by_one;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  // The plain update w -= g / 2 shows gradients; AdamW, by core's Step, norms and states.
  bool adamw = false;
  int64_t first_step = 0, steps = 4;
  bool lists_all = false;  // every rank lists every parameter
  bool evaluates = false;  // after each step, which changes nothing
  bool unshards = false;   // calls hold_whole() after each step
  bool reloads = false;  // without adamw, after each step: the first values are written, used, and taken back
  bool restarts = false;          // with adamw and pp: every step begins with an update that is undone
  const Outcome* from = nullptr;  // with adamw: initial values and optimizer state
  Kept* keeps = nullptr;          // without adamw: gets copies of what the ranks hold at the end
  Kept* resumes = nullptr;        // without adamw: the ranks begin with these
  std::shared_ptr<const IPipelineSchedule> schedule = nullptr;  // of Drive::pipeline; null: the kit's own
  const CheckDevice* device = nullptr;                          // where it trains; null: the CPU
  bool values_differ = false;  // with foreign or valued: each data-parallel rank has other first values
  int world() const { return dp * replicas * tp * pp; }
};

bool has_axis(const Needs& needs, const std::string& axis);

// Why the strategy's needs exclude this course; empty: they do not.
std::string refusal(const Subject& subject, const Course& course);

// Trains. Throws Error{plugin_failed} for a violation of the interface or an exception of the stage.
Outcome train(const Subject& subject, const Course& course);

// The strategy `single`.
Subject single();

// Throws Error{plugin_failed} with the first of the differences.
void compare(const Outcome& got, const Outcome& want);

}  // namespace heddle::kits
