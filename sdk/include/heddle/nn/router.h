// The router of a mixture of experts: scores, the choice of experts, and the losses that balance them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/autocast.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle::model {

// Which experts a router has chosen for each token, and how much each of them weighs.

struct Routing {
  at::Tensor experts;  // int64 [tokens, k]; -1: none, the choice was dropped or its expert is elsewhere
  at::Tensor weights;  // [tokens, k], fp32 (fp64 in an fp64 model), with a gradient to the router
};

// Work that does not need the experts' outputs, such as a shared expert. Whoever moves tokens calls run()
// while they travel; the layer calls it at the end, and what has run does not run again.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work) : work_(std::move(work)) {}
  void run() {
    if (const auto work = std::exchange(work_, nullptr)) work();
  }

 private:
  std::function<void()> work_;
};

// From a router's logits to the chosen experts and their weights, as one autograd node.

struct RouterRule {
  enum class Score {
    softmax,             // over all experts, then the largest k
    softmax_after_topk,  // the k largest logits, then a softmax over them
    sigmoid,
    sqrt_softplus
  };
  Score score = Score::softmax;
  int64_t top_k = 1;
  int64_t groups = 1, top_groups = 1;  // a token's experts are in the best top_groups groups
  int64_t group_best = 1;              // a group is worth the sum of so many of its largest scores
  bool normalise = false;              // the k weights are divided by their sum
  double scale = 1;                    // of the weights, after that
  bool operator==(const RouterRule&) const = default;
};

struct Scored {
  at::Tensor experts;  // int64 [tokens, k], the best first
  at::Tensor weights;  // [tokens, k]
  at::Tensor scores;   // [tokens, experts]: of all experts, summing to 1 where `normalise` or a softmax does
};

// Of ranks that hold the same tokens: from a choice of experts, int64 [tokens, k], to one rank's.
using AgreeOnExperts = std::function<at::Tensor(const at::Tensor& experts)>;

// logits [tokens, experts], fp32 or fp64. bias [experts] or undefined is added to the scores where experts
// are chosen; weights are without it, and no gradient reaches it. Groups that are not chosen are left out by
// -inf. weights and scores have gradients to the logits. The experts of a token are distinct, and NaN comes
// before every number. Which of equal scores is chosen depends on the path: on the CPU, for softmax and
// sigmoid without groups, the first; elsewhere what at::topk chooses, which is not specified. With `agree`
// the weights are those of the experts that it returns.
HEDDLE_API Scored score_experts(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule,
                                const AgreeOnExperts& agree = {});

// For benchmarks: the token at the position p of its document takes the experts p k, p k + 1, ... in turn,
// each with the weight 1 / k (after NeMo AutoModel's FakeBalancedGate). positions int64 [tokens]. No
// gradient.
HEDDLE_API Scored score_in_turn(const at::Tensor& logits, const at::Tensor& positions,
                                const RouterRule& rule);

// x [tokens, width] of all rows of the batch, each number times a factor that is uniform in [1 - noise,
// 1 + noise) (Fedus et al. 2021). A factor is a function of the row's tokens without padding, the place in
// the row, the column and `layer`: the same on all ranks that hold the row, and when it is computed again.
// The node keeps one number a token.
HEDDLE_API at::Tensor jittered(const at::Tensor& x, double noise, int64_t layer, const Batch& batch);

// Auxiliary losses that keep the experts of a mixture equally loaded.

struct BalanceLoss {
  // n_e tokens of T chose expert e (k choices each), of E experts with the mean score p_e over the tokens.
  enum class Form {
    none,
    layer,     // E / (k T) sum_e n_e p_e, of each layer: 1 where all are equal. NeMo AutoModel, Megatron-Core
    sequence,  // the same of each sequence, and their mean. Megatron-Core's seq_aux_loss
    global,    // that of a layer with n_e / T over all ranks and the step's microbatches so far, in training.
               // Megatron-Core's global_aux_loss
    model      // E / T sum_e n_e p_e with n and p as means over the layers: transformers'
               // load_balancing_loss_func
  } form = Form::none;
  double coefficient = 0;
  bool operator==(const BalanceLoss&) const = default;
};

// How often each expert was chosen: chosen [rows * tokens of a row, k] (int64, -1: none) to fp32
// [rows, experts]. Below autograd. On the CPU throws Error{internal} where there is no such expert.
HEDDLE_API at::Tensor count_choices(const at::Tensor& chosen, int64_t rows, int64_t experts);

// sum over rows, tokens and experts of factors[row, expert] * scores[row * tokens + token, expert], as one
// number with a gradient to the scores. factors [rows, experts] has none. padding (bool [rows * tokens];
// undefined: none): tokens that are left out.
HEDDLE_API at::Tensor weighted_sum(const at::Tensor& scores, const at::Tensor& factors,
                                   const at::Tensor& padding = {});

// The sum of logsumexp(logits)^2 over the tokens times `factor` (Zoph et al. 2022), divided by `tokens` (one
// element; undefined: the number of these tokens). One number. padding as above.
HEDDLE_API at::Tensor z_loss(const at::Tensor& logits, double factor, const at::Tensor& tokens = {},
                             const at::Tensor& padding = {});

// What the layers of one model have for the form `model`: one microbatch at a time, so the layers are on one
// rank, and no other microbatch begins before the last layer.
class HEDDLE_API LayerBalance {
 public:
  LayerBalance(int64_t layers, double coefficient) : layers_(layers), coefficient_(coefficient) {}
  // Layer 0 begins anew. counts [experts] and the number of tokens (one element) are of all ranks that hold
  // tokens of the microbatch, scores [tokens, experts] of this one, without its padding (as above). After the
  // last layer this rank's part of the loss; before, undefined. Throws Error{not_built} where a layer is
  // missing.
  at::Tensor add(int64_t layer, const at::Tensor& counts, const at::Tensor& tokens, const at::Tensor& scores,
                 const at::Tensor& padding = {});

 private:
  int64_t layers_, next_ = 0;
  double coefficient_;
  at::Tensor counts_;
  std::vector<at::Tensor> sums_;  // of the scores over the tokens, one for each layer
};

}  // namespace heddle::model

namespace heddle {

class Communicator;

struct RouterConfig {
  int64_t hidden = 0, experts = 0;
  model::RouterRule rule;
  bool bias = false;     // of the product
  bool in_fp32 = false;  // the product in fp32, whatever the model computes in
  bool in_turn = false;  // experts in turn instead, by positions (model::score_in_turn)
  double jitter = 0;     // in training the layer's input is multiplied by 1 +- so much (model::jittered)
  // Its input is normalised by its root mean square, with this under the root, and multiplied by the slot
  // "scale" [hidden] / sqrt(hidden) (Gemma 4); 0: it is not.
  double norm_eps = 0;
  bool expert_scale = false;  // weights are multiplied by the slot "per_expert_scale" [experts] (Gemma 4)
  // A bias that chooses and does not weigh, and that no gradient reaches (Wang et al. 2024, without an
  // auxiliary loss). After each step correction_rate * sign(mean load - load) is added to it.
  bool correction = false;
  double correction_rate = 0;
  // So many tokens have their experts in the slot "tid2eid" (hash layers, Roller et al. 2021, DeepSeek-V4):
  // scores give the weights alone. 0: scores choose.
  int64_t table_tokens = 0;
  model::BalanceLoss balance;
  double z_loss = 0;             // its coefficient
  std::string group = "router";  // of the side outputs: router/aux_loss
  int64_t layer = 0;             // of the model: router/load_3
  int64_t place = 0;             // among the layers with experts
  // For balance.form model: shared by the routers of one model.
  std::shared_ptr<model::LayerBalance> layers;
};

// Slots "weight" [experts, hidden] and, if asked for, "bias" [experts], "scale" [hidden], "per_expert_scale"
// [experts], "e_score_correction_bias" [experts] (fp32 under any precision but fp64; it does not train) and
// "tid2eid" (int64 [table_tokens, top_k], which does not train: its first values take the experts in turn).
class HEDDLE_API Router : public Module, public AfterUpdate {
 public:
  // Throws Error{config}: groups or numbers of choices that the experts do not allow.
  Router(RouterConfig config, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "router"; }
  ModuleTraits traits() const override;

  at::Tensor weight, bias, scale, expert_scale, correction, table;

  // x [tokens, hidden] of all rows of the batch. Auxiliary losses go with the weights' gradient. Padding gets
  // no expert (-1), and no loss or load counts it.
  model::Routing route(const at::Tensor& x, const Batch& batch);

  // The seam for ranks that hold the same tokens, whose logits may differ in the last bit: links return the
  // choice of one of them, so that all ranks take the same experts. experts int64 [tokens, k]. No gradient.
  using Agree = Chain<at::Tensor(at::Tensor experts)>;
  Agree agree{"Router::agree"};

  // The seam for ranks that hold other tokens of the same rows: links add up the counts, fp32
  // [rows, experts + 1] (the last column counts tokens of the text), over these ranks. No gradient.
  using Total = Chain<at::Tensor(at::Tensor counts)>;
  Total total{"Router::total"};

  // Moves the correction bias by the loads of the step, over all microbatches and ranks of dp and cp; a step
  // that was skipped leaves it.
  void after_update(const Updated& updated, const DeviceMesh& mesh) override;
  // Where the bias moves (that of a router whose weight is frozen stays), or the form `global` counts a step.
  bool wants_updates() const override;
  // For the form `global`: the ranks with other samples.
  void before_run(const DeviceMesh& mesh) override;

  const RouterConfig& config() const { return config_; }
  // How often each expert was chosen, [experts]: summed over microbatches and ranks.
  const Metric& load() const { return load_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: route() gives two tensors

 private:
  struct Counted {
    at::Tensor choices;  // fp32 [rows, experts]
    at::Tensor tokens;   // fp32 [rows, 1]: of the text
  };
  at::Tensor logits(const at::Tensor& x, const Batch& batch);
  void add_slot_of(const char* name, at::Tensor& slot, int64_t size, const Init& init,
                   const at::TensorOptions& options);
  model::Scored choose(const at::Tensor& logits, const Batch& batch);
  at::Tensor with_losses(const at::Tensor& logits, const model::Scored& scored, const Batch& batch);
  Counted count(const model::Scored& scored, const Batch& batch);
  bool moves_correction() const;
  at::Tensor balance_loss(const model::Scored& scored, const Counted& all, const at::Tensor& padding);
  at::Tensor global_factors(const Counted& all);
  void move_correction(const Updated& updated);
  bool balances() const { return config_.balance.form != model::BalanceLoss::Form::none && !config_.in_turn; }
  bool has_z_loss() const { return config_.z_loss != 0 && !config_.in_turn; }

  RouterConfig config_;
  model::Autocast fp32_{at::kFloat, model::Autocast::Weights::cast_each_time};
  Metric load_;
  AuxiliaryLoss balance_, z_;
  Communicator* samples_ = nullptr;  // null: no other rank has samples
  at::Tensor so_far_;  // fp32 [1, experts + 2]: counts, tokens and texts of the step, of all ranks
};

}  // namespace heddle
