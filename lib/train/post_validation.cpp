// Messages of 16 bytes up the pipeline and back, and the decision that they allow.
#include "lib/train/post_validation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <string>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/dry.h"
#include "lib/train/optimizer/norm.h"

namespace heddle::train {
namespace {

// A sum over some ranks may round above the sum over all: what is this close to a limit is decided by the
// whole.
constexpr double kNear = 1e-9;

}  // namespace

PostValidation::PostValidation(Stages& stages, const DeviceMesh& mesh, Updater& updater,
                               std::optional<double> max_norm)
    : stages_(stages),
      mesh_(mesh),
      updater_(updater),
      max_norm_(max_norm),
      dry_(dry_rank(mesh) != nullptr),
      ranks_(&mesh_.group(kPipelineAxis)) {
  for (size_t i = 0; i < stages.size(); ++i)
    if (!stages[i]->can_restart())
      throw Error(
          ErrorCode::plugin_failed, stages.whole() ? stages.whole()->where : "train",
          "a step of the strategy" +
              (stages.whole() ? " '" + stages.whole()->strategy + "'" : std::string()) +
              " cannot begin anew, which post-validation needs",
          "override ParallelStage::can_restart() and restart_step(), or set pp_post_validation: false");
  for (const Axis& axis : mesh_.axes())
    if (axis.size > 1 && axis.name != kPipelineAxis) peers_.push_back(&mesh_.group(axis.name));
  std::vector<mesh::TransferPair> transfers;  // of pass_on()
  const int last = ranks_->size() - 1;
  for (int rank = 0; rank < last; ++rank) {
    transfers.emplace_back(rank, rank + 1);
    transfers.emplace_back(last, rank);
  }
  mesh::connect(*ranks_, transfers);
}

PostValidation::Verdict PostValidation::judge(double norm, double loss) const {
  if (!std::isfinite(loss) || !(norm <= largest_norm(max_norm_))) return Verdict::skip;
  if (!max_norm_) return Verdict::plain;
  const at::Tensor value = at::zeros({1}, at::kDouble).fill_(norm);
  return clip_divisor(value, *max_norm_).item<float>() > 1 ? Verdict::clip : Verdict::plain;
}

// A tag that no transfer of the schedule has: there is no edge behind the last stage.
void PostValidation::pass_on(const at::Tensor& mine) {
  const int tag = stages_.pipeline().stages() - 1, rank = ranks_->rank(), last = ranks_->size() - 1;
  known_ = mine;
  if (rank > 0) {
    const at::Tensor before = at::empty_like(mine);
    ranks_->receive(before, rank - 1, tag)->wait();
    known_ = before + mine;
  }
  if (rank < last) {
    totals_ = at::empty_like(mine);
    works_.push_back(ranks_->send(known_, rank + 1, tag));
    works_.push_back(ranks_->receive(totals_, last, tag));
    return;
  }
  totals_ = known_;
  for (int other = 0; other < last; ++other) works_.push_back(ranks_->send(totals_, other, tag));
}

void PostValidation::update(const at::Tensor& squares, const at::Tensor& loss, double lr,
                            double weight_decay) {
  const at::NoGradGuard no_gradients;
  const at::Tensor known_loss = loss.defined() ? loss : at::zeros_like(squares);
  pass_on(dry_ ? at::zeros({2}, at::kDouble) : at::cat({squares, known_loss}));
  pending_ = true;
  lr_ = lr;
  weight_decay_ = weight_decay;
  if (dry_) {
    updater_.record_update();
    return updater_.drop_gradients();
  }
  updated_ = judge(known_.select(0, 0).sqrt().item<double>() * (1 - kNear),
                   known_.select(0, 1).item<double>()) == Verdict::plain;
  updater_.keep(/*state=*/updated_, /*gradients=*/max_norm_.has_value());
  updated_ ? updater_.update({lr, weight_decay, {}, {}}) : updater_.drop_gradients();
}

// Ranks with equal stages may round their norms differently, and must go on together.
PostValidation::Verdict PostValidation::agreed(Verdict mine) const {
  const at::Tensor verdict = at::zeros({1}, at::kDouble).fill_(static_cast<double>(mine));
  for (Communicator* peers : peers_) peers->all_reduce(verdict, Reduce::max)->wait();
  return dry_ ? Verdict::plain : static_cast<Verdict>(verdict.item<double>());
}

PostValidation::Totals PostValidation::wait(const at::Tensor& loss) {
  const at::NoGradGuard no_gradients;
  pending_ = false;
  for (const auto& work : works_) work->wait();
  works_.clear();
  norm_ = totals_.narrow(0, 0, 1).sqrt();
  const at::Tensor total = loss.defined() ? loss : totals_.narrow(0, 1, 1);
  verdict_ = agreed(dry_ ? Verdict::plain : judge(norm_.item<double>(), total.item<double>()));
  return {norm_, total, verdict_ == Verdict::skip, verdict_ == Verdict::plain};
}

void PostValidation::amend() {
  if (verdict_ != Verdict::plain || !updated_) {
    updater_.undo();
    if (verdict_ == Verdict::skip)
      updater_.drop_gradients();
    else
      updater_.update({lr_, weight_decay_, max_norm_ ? clip_divisor(norm_, *max_norm_) : at::Tensor(), {}});
  }
  for (const auto& stage : stages_) stage->parameters_changed(ParametersChange::updated);
}

}  // namespace heddle::train
