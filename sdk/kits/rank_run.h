// One rank of a course: its stages, the steps, and the checks between them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "course.h"
#include "gathered.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/stages.h"
#include "heddle/train/step.h"
#include "lib/train/runner.h"

namespace heddle::kits {

// The common results of the ranks of a course.
struct Shared {
  explicit Shared(const Course& course)
      : gradients(course.adamw ? 0 : static_cast<size_t>(course.steps)),
        held(static_cast<size_t>(course.steps)),
        losses(static_cast<size_t>(course.steps)),
        norms(course.adamw ? static_cast<size_t>(course.steps) : 0) {}
  std::mutex mutex;
  std::deque<Gathered> gradients;     // of each step, without adamw
  std::deque<Gathered> held;          // after each step, what Unsharded is compared with
  std::vector<double> losses, norms;  // of each step; norms with adamw
  std::map<std::string, std::vector<double>> sides;
  Gathered parameters, averages, squares, steps;
};

class RankRun {
 public:
  RankRun(const Subject& subject, const Course& course, Rendezvous& rendezvous, Shared& shared);
  void run();

 private:
  Stages build(const Subject& subject);
  std::vector<Batch> batches(int64_t step) const;
  // A loss without gradients: of all rows, or the sum of this rank's.
  double evaluate(int64_t step);
  double forward_by_hand(int64_t step);
  double backward_by_hand(const std::vector<Batch>& mine, double scale);
  void plain_step(int64_t index);
  void take_gradient(const Shard& shard, Gathered& into);
  void adamw_step(int64_t index);
  void report();

  void check_list();  // every name is there
  Named values();     // of the shards, by their places: a name may come several times
  void write(const Named& values);
  void reload(const Named& first, double before);
  // Every rank has all parameters, as the owned shards of all ranks make them.
  void unshard(size_t index);
  at::Tensor part_of(const at::Tensor& whole, const at::Tensor& held) const;
  void load_states();
  void save_states();

  const Course& course_;
  Shared& shared_;
  Rendezvous& rendezvous_;
  DeviceMesh mesh_;
  Stages stages_;
  std::optional<Step> step_;
  std::optional<std::pair<int64_t, StepReport>> last_;  // not reported yet
  std::optional<train::Runner> runner_;
};

}  // namespace heddle::kits
