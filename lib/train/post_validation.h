// The optimizer's update before the gradient norm of all stages is known: post-validation (Qi et al. 2023,
// arXiv:2401.10241, section 4).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/stages.h"
#include "lib/train/optimizer/updater.h"

namespace heddle::train {

// The sum of squares passes along the pipeline: a rank adds its own to that of the ranks before it, and
// updates if that sum asks for neither clipping nor a skip. The last rank sends the whole to all, who look at
// it when the next step has begun. An update that was wrong is undone and made again.
class PostValidation {
 public:
  // All outlive it. Throws Error{internal} for a stage that cannot begin a step anew.
  PostValidation(Stages& stages, const DeviceMesh& mesh, Updater& updater, std::optional<double> max_norm);

  // Takes the gradients. `squares`, `loss`: sums of this rank's stages, fp64 [1]; the loss may be undefined
  // here and given to wait(). Waits for the ranks before this one alone.
  void update(const at::Tensor& squares, const at::Tensor& loss, double lr, double weight_decay);

  bool pending() const { return pending_; }
  struct Totals {
    at::Tensor norm, loss;  // fp64 [1]: of all stages
    bool skips = false;     // the update is skipped; the same on every rank
    bool holds = true;      // it was right as it was made; the same on every rank
  };
  // Once after each update. `loss`: of all stages, where update() got none. A collective of the ranks with
  // equal stages.
  Totals wait(const at::Tensor& loss = {});
  // After wait() said no: the parameters as if the norm had been known.
  void amend();

 private:
  enum class Verdict { plain, clip, skip };  // one that follows overrules those before it
  Verdict judge(double norm, double loss) const;
  void pass_on(const at::Tensor& mine);
  Verdict agreed(Verdict mine) const;

  Stages& stages_;
  const DeviceMesh mesh_;
  Updater& updater_;
  const std::optional<double> max_norm_;
  const bool dry_;
  Communicator* ranks_;               // of pp
  std::vector<Communicator*> peers_;  // the axes along which ranks have equal stages

  bool pending_ = false, updated_ = false;
  double lr_ = 0, weight_decay_ = 0;
  at::Tensor known_, totals_;                 // fp64 [2]: squares and loss, up to this rank and of all
  std::vector<std::unique_ptr<Work>> works_;  // in flight
  at::Tensor norm_;                           // of the last wait()
  Verdict verdict_ = Verdict::plain;          // of the last wait(), the same on every rank
};

}  // namespace heddle::train
