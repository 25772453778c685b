// The router of a mixture of experts: scores, the choice of experts, and the losses that balance them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/model/autocast.h"
#include "heddle/model/chain.h"
#include "heddle/model/load_balance.h"
#include "heddle/model/module.h"
#include "heddle/model/router_scores.h"
#include "heddle/model/routing.h"

namespace heddle {

struct RouterConfig {
  int64_t hidden = 0, experts = 0;
  model::RouterRule rule;
  bool bias = false;     // of the product
  bool in_fp32 = false;  // the product in fp32, whatever the model computes in
  bool in_turn = false;  // experts in turn instead (model::score_in_turn)
  double jitter = 0;     // the router's input is multiplied by 1 - jitter .. 1 + jitter in training
  model::BalanceLoss balance;
  double z_loss = 0;             // its coefficient
  std::string group = "router";  // of the side outputs: router/aux_loss
  int64_t layer = 0;             // of the model: router/load_3
  int64_t place = 0;             // among the layers with experts
  // For balance.form model: shared by the routers of one model.
  std::shared_ptr<model::LayerBalance> layers;
};

// Slots "weight" [experts, hidden] and, if asked for, "bias" [experts].
class HEDDLE_API Router : public Module {
 public:
  Router(RouterConfig config, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "router"; }

  at::Tensor weight, bias;

  // x [tokens, hidden] of all rows of the batch. Auxiliary losses go with the weights' gradient.
  model::Routing route(const at::Tensor& x, const Batch& batch);

  // The seam for ranks that hold other tokens of the same rows: links add up the counts, fp32
  // [rows, experts + 1] (the last column counts tokens), over these ranks. No gradient.
  using Total = Chain<at::Tensor(at::Tensor counts)>;
  Total total{"Router::total"};

  const RouterConfig& config() const { return config_; }
  // How often each expert was chosen, [experts]: summed over microbatches and ranks.
  const Metric& load() const { return load_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: route() gives two tensors

 private:
  at::Tensor logits(const at::Tensor& x, const Batch& batch);
  at::Tensor balanced(at::Tensor weights, const model::Scored& scored, const Batch& batch);
  at::Tensor balance_loss(const model::Scored& scored, const at::Tensor& counts, int64_t rows);

  RouterConfig config_;
  model::Autocast fp32_{at::kFloat, model::Autocast::Weights::cast_each_time};
  Metric load_;
  AuxiliaryLoss balance_, z_;
};

}  // namespace heddle
