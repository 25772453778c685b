// A parallelizer that adds an auxiliary loss and metrics to a layer of the model, and changes nothing else.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/module.h"
#include "heddle/parallel/parallelizer.h"

namespace heddle::tests {

struct ProbeOptions {
  std::string unit = "model.layers.1";
  double weight = 50;  // hidden states are small at first
  LossDivisor divisor = LossDivisor::label_tokens;
  std::vector<std::string> axes = {"dp_cp"};  // with sequence parallelism also tp
};

// Attached to the output of one unit, hidden states [tokens, width].
class Probe : public IParallelizer {
 public:
  explicit Probe(ProbeOptions options)
      : options_(std::move(options)),
        loss_("probe/loss", options_.divisor, options_.axes),
        mean_("probe/mean", Combine::mean, options_.axes),
        peak_("probe/peak", Combine::max, options_.axes),
        tokens_("probe/tokens", Combine::sum, options_.axes),
        ids_("probe/ids", Combine::sum, {"dp_cp"}, 3) {}
  Needs needs() const override { return {}; }
  std::string name() const override { return "probe"; }
  std::vector<SideOutput*> side_outputs() override { return {&loss_, &mean_, &peak_, &tokens_, &ids_}; }
  std::vector<Placed> apply(Units& units, const DeviceMesh&) override {
    for (const auto& unit : units)
      if (unit->name() == options_.unit)
        unit->module()->output.add([this](at::Tensor x, const Batch& batch) { return add(x, batch); });
    return {};
  }
  void after_update(const Updated& updated, const DeviceMesh&) override {
    ++updates;
    last = updated.values.find("probe/ids");
    skipped = updated.skipped.item<double>();
  }

  int updates = 0;
  at::Tensor last;
  double skipped = -1;

 private:
  at::Tensor add(const at::Tensor& x, const Batch& batch) {
    const at::Tensor squares = x * x;
    const auto rows = static_cast<double>(x.size(0));
    mean_.add(squares.detach().mean(), batch, rows);
    peak_.add(x.detach().abs().max(), batch);
    tokens_.add(at::full({1}, rows), batch);
    // Like a router's token counts, the value is equal on every rank of tp, so it counts once.
    const at::Tensor kind = batch.tokens.flatten().remainder(3);
    ids_.add(at::stack({kind.eq(0).sum(), kind.eq(1).sum(), kind.eq(2).sum()}), batch);
    const at::Tensor of_tokens = squares.mean(1);
    return loss_.add(x,
                     options_.weight *
                         (options_.divisor == LossDivisor::microbatches ? of_tokens.mean() : of_tokens.sum()),
                     batch);
  }

  ProbeOptions options_;
  AuxiliaryLoss loss_;
  Metric mean_, peak_, tokens_, ids_;
};

inline std::function<std::shared_ptr<IParallelizer>()> probe(ProbeOptions options = {}) {
  return [options] { return std::make_shared<Probe>(options); };
}

}  // namespace heddle::tests
