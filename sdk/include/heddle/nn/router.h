// The router of a mixture of experts: scores, top-k selection, and load-balancing losses.
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

// The output of a router.

// The experts that the router selected for each token, and their weights.
struct Routing {
  at::Tensor experts;  // int64 [tokens, k]; -1: dropped, or the expert is on another rank
  at::Tensor weights;  // [tokens, k], fp32 (fp64 in an fp64 model), with a gradient to the router
};

// Work that does not depend on the experts' outputs, such as a shared expert. A link that sends tokens calls
// run() during the communication. The layer calls run() at the end, which does nothing the second time.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work) : work_(std::move(work)) {}
  void run() {
    if (const auto work = std::exchange(work_, nullptr)) work();
  }

 private:
  std::function<void()> work_;
};

// Selecting experts and weights from router logits, as one autograd node.

// The rule that selects experts from scores.
struct RouterRule {
  enum class Score {
    softmax,             // softmax over all experts, then top-k
    softmax_after_topk,  // top-k of the logits, then softmax over them
    sigmoid,
    sqrt_softplus
  };
  Score score = Score::softmax;
  int64_t top_k = 1;
  int64_t groups = 1, top_groups = 1;  // the experts of a token are in its best top_groups groups
  int64_t group_best = 1;              // the score of a group is the sum of this many of its largest scores
  bool normalise = false;              // divide the k weights by their sum
  double scale = 1;                    // multiplies the weights, after normalization
  bool operator==(const RouterRule&) const = default;
};

// The result of score_experts().
struct Scored {
  at::Tensor experts;  // int64 [tokens, k], best first
  at::Tensor weights;  // [tokens, k]
  at::Tensor scores;  // [tokens, experts]: scores of all experts; they sum to 1 with `normalise` or a softmax
};

// Replaces selected experts, int64 [tokens, k], by the selection of one rank. For ranks that have the same
// tokens.
using AgreeOnExperts = std::function<at::Tensor(const at::Tensor& experts)>;

// Scores experts. logits [tokens, experts] in fp32 or fp64. bias [experts] or undefined: added to the scores
// for the selection only, without gradient and without effect on the weights. Groups that are not selected
// are masked with -Inf. weights and scores have gradients to the logits. The experts of a token are distinct,
// and NaN ranks above every number. Ties: on the CPU, softmax and sigmoid without groups select the first
// expert; other paths use at::topk, whose choice is unspecified. agree: if set, the weights are those of the
// experts that it returns.
HEDDLE_API Scored score_experts(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule,
                                const AgreeOnExperts& agree = {});

// Selects experts in turn, for benchmarks: the token at position p of its document gets the experts p k, p k
// + 1, ..., each with weight 1 / k (after NeMo AutoModel's FakeBalancedGate). positions int64 [tokens]. No
// gradient.
HEDDLE_API Scored score_in_turn(const at::Tensor& logits, const at::Tensor& positions,
                                const RouterRule& rule);

// Multiplies each element of x [tokens, width] (all rows of the batch) by a random factor, uniform in [1 -
// noise, 1 + noise) (Fedus et al. 2021). A factor depends on the row's tokens without padding, the position
// in the row, the column and `layer`, so it is equal on all ranks that have the row and in a recomputation.
// The node saves one number per token.
HEDDLE_API at::Tensor jittered(const at::Tensor& x, double noise, int64_t layer, const Batch& batch);

// Auxiliary losses that balance the load of experts.

// A load-balancing loss and its coefficient.
struct BalanceLoss {
  // T tokens with k choices each; n_e of them selected expert e of E, whose mean score over the tokens is
  // p_e.
  enum class Form {
    none,
    layer,     // E / (k T) sum_e n_e p_e per layer, 1 for equal loads. NeMo AutoModel, Megatron-Core
    sequence,  // the same per sequence, averaged over sequences. Megatron-Core's seq_aux_loss
    // `layer`, but in training with n_e / T over all ranks and the step's microbatches so far.
    // Megatron-Core's global_aux_loss.
    global,
    model  // E / T sum_e n_e p_e with n and p averaged over layers: transformers' load_balancing_loss_func
  } form = Form::none;
  double coefficient = 0;
  bool operator==(const BalanceLoss&) const = default;
};

// Counts how often each expert was selected: chosen [rows * tokens per row, k] (int64, -1: none) to fp32
// [rows, experts]. Below autograd. On the CPU throws Error{internal} for an invalid expert.
HEDDLE_API at::Tensor count_choices(const at::Tensor& chosen, int64_t rows, int64_t experts);

// Returns the sum over rows, tokens and experts of factors[row, expert] * scores[row * tokens + token,
// expert], one element with a gradient to the scores. factors: [rows, experts], without gradient. padding:
// bool [rows * tokens], tokens to skip; may be undefined.
HEDDLE_API at::Tensor weighted_sum(const at::Tensor& scores, const at::Tensor& factors,
                                   const at::Tensor& padding = {});

// Returns factor times the sum of logsumexp(logits)^2 over tokens, divided by `tokens` (Zoph et al. 2022),
// one element. tokens: one element; undefined: the number of tokens in logits. padding: see weighted_sum().
HEDDLE_API at::Tensor z_loss(const at::Tensor& logits, double factor, const at::Tensor& tokens = {},
                             const at::Tensor& padding = {});

// Shared state of the routers of a model for Form::model. It holds one microbatch at a time, so all layers
// are on one rank, and a microbatch passes all layers before the next one begins.
class HEDDLE_API LayerBalance {
 public:
  LayerBalance(int64_t layers, double coefficient) : layers_(layers), coefficient_(coefficient) {}
  // Adds a layer; layer 0 begins a microbatch. counts [experts] and tokens (one element) are summed over all
  // ranks that have tokens of the microbatch; scores [tokens, experts] are of this rank, with `padding` (see
  // weighted_sum()) skipped. Returns this rank's part of the loss after the last layer, and an undefined
  // tensor before it. Throws Error{not_built} if a layer was skipped.
  at::Tensor add(int64_t layer, const at::Tensor& counts, const at::Tensor& tokens, const at::Tensor& scores,
                 const at::Tensor& padding = {});

 private:
  int64_t layers_, next_ = 0;
  double coefficient_;
  at::Tensor counts_;
  std::vector<at::Tensor> sums_;  // sum of the scores over tokens, per layer
};

}  // namespace heddle::model

namespace heddle {

class Communicator;

// Sizes and settings of a router.
struct RouterConfig {
  int64_t hidden = 0, experts = 0;
  model::RouterRule rule;
  bool bias = false;     // bias of the router's product
  bool in_fp32 = false;  // compute the product in fp32 in any precision
  bool in_turn = false;  // select experts in turn by position (model::score_in_turn)
  double jitter = 0;     // in training, noise of the router's input (model::jittered); 0 disables it
  // Eps of an RMS norm of the input, which is then multiplied by the slot "scale" [hidden] / sqrt(hidden)
  // (Gemma 4). 0: no norm.
  double norm_eps = 0;
  bool expert_scale = false;  // weights are multiplied by the slot "per_expert_scale" [experts] (Gemma 4)
  // A bias that affects the selection but not the weights and has no gradient (loss-free balancing, Wang et
  // al. 2024). After each step it changes by correction_rate * sign(mean load - load).
  bool correction = false;
  double correction_rate = 0;
  // Number of tokens whose experts are in the slot "tid2eid" (hash layers, Roller et al. 2021; DeepSeek-V4),
  // so that scores only give the weights. 0: scores select the experts.
  int64_t table_tokens = 0;
  model::BalanceLoss balance;
  double z_loss = 0;             // coefficient of the z-loss
  std::string group = "router";  // prefix of the side outputs: router/aux_loss
  int64_t layer = 0;             // index of the layer in the model: router/load_3
  int64_t place = 0;             // index among the layers with experts
  // Shared by the routers of one model, for balance.form `model`.
  std::shared_ptr<model::LayerBalance> layers;
};

// The router of a layer. Slots: "weight" [experts, hidden], and optionally "bias" [experts], "scale"
// [hidden], "per_expert_scale" [experts], "e_score_correction_bias" [experts] (fp32 in any precision except
// fp64, not trained) and "tid2eid" (int64 [table_tokens, top_k], not trained, initialized with the experts in
// turn).
class HEDDLE_API Router : public Module, public AfterUpdate {
 public:
  // Throws Error{config} for groups or top_k that do not fit the number of experts.
  Router(RouterConfig config, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "router"; }
  ModuleTraits traits() const override;

  at::Tensor weight, bias, scale, expert_scale, correction, table;

  // Returns the routing of x [tokens, hidden], all rows of the batch. Auxiliary losses are attached to the
  // gradient of the weights. Padding gets no expert (-1) and does not count in losses and loads.
  model::Routing route(const at::Tensor& x, const Batch& batch);

  // The seam for ranks with the same tokens, whose logits may differ in the last bit: links return the
  // selection of one of these ranks, so that all use the same experts. experts: int64 [tokens, k]. No
  // gradient.
  using Agree = Chain<at::Tensor(at::Tensor experts)>;
  Agree agree{"Router::agree"};

  // The seam for ranks with different tokens of the same rows: links sum the counts over these ranks. counts:
  // fp32 [rows, experts + 1]; the last column counts tokens without padding. No gradient.
  using Total = Chain<at::Tensor(at::Tensor counts)>;
  Total total{"Router::total"};

  // Updates the correction bias by the loads of the step, over all microbatches and all ranks of dp and cp.
  // Does nothing for a skipped step.
  void after_update(const Updated& updated, const DeviceMesh& mesh) override;
  // Returns whether the bias is updated (not if the router's weight is frozen) or Form::global counts a step.
  bool wants_updates() const override;
  // Finds the ranks with different samples, for Form::global.
  void before_run(const DeviceMesh& mesh) override;

  const RouterConfig& config() const { return config_; }
  // The metric that counts how often each expert was selected, [experts], over microbatches and ranks.
  const Metric& load() const { return load_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws; use route()

 private:
  struct Counted {
    at::Tensor choices;  // fp32 [rows, experts]
    at::Tensor tokens;   // fp32 [rows, 1], without padding
  };
  at::Tensor logits(const at::Tensor& x, const Batch& batch);
  void add_vector(const char* name, at::Tensor& slot, int64_t size, const Init& init,
                  const at::TensorOptions& options);
  model::Scored choose(const at::Tensor& logits, const Batch& batch);
  at::Tensor with_losses(const at::Tensor& logits, const model::Scored& scored, const Batch& batch);
  Counted count(const model::Scored& scored, const Batch& batch);
  bool moves_correction() const;
  at::Tensor balance_loss(const model::Scored& scored, const Counted& totals, const at::Tensor& padding);
  at::Tensor global_factors(const Counted& totals);
  void move_correction(const Updated& updated);
  bool balances() const { return config_.balance.form != model::BalanceLoss::Form::none && !config_.in_turn; }
  bool has_z_loss() const { return config_.z_loss != 0 && !config_.in_turn; }

  RouterConfig config_;
  model::Autocast fp32_{at::kFloat, model::Autocast::Weights::cast_each_time};
  Metric load_;
  AuxiliaryLoss balance_, z_;
  Communicator* samples_ = nullptr;  // null if no other rank has samples
  at::Tensor so_far_;  // fp32 [1, experts + 2]: counts, tokens and rows with text of the step, over ranks
};

}  // namespace heddle
