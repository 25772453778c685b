// Experts of a mixture of experts: feed-forward networks of equal shape, stored in stacked parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"
#include "heddle/nn/activation.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/router.h"

namespace heddle::model {

// The activation between the two products of an expert, multiplied by the routing weight of each row.

struct ExpertActivation {
  enum class Kind {
    swiglu,          // silu(gate) * up
    limited_swiglu,  // min(silu(gate), limit) * clamp(up, -limit, limit): Step-3.5
    clamped_swiglu,  // gate and up clamped, gate * sigmoid(alpha * gate) * (up + shift): gpt_oss, DeepSeek-V4
    geglu,           // gelu(gate) * up with the exact gelu
    geglu_tanh,      // gelu(gate) * up with the tanh approximation: Gemma 4
    relu2,           // relu(x)^2 without a gate, so the first product has half the columns
    situ             // gated_by_situ(): Kimi K3
  } kind = Kind::swiglu;
  double alpha = 1.702, limit = 7.0;  // used by clamped_swiglu; limit also by limited_swiglu
  bool interleaved = false;           // gate and up columns alternate; otherwise all gate columns come first
  Situ situ = {};
  double shift = 1;  // used by clamped_swiglu
  // Columns of the first product per column of the activation: 2 with a gate, else 1.
  int64_t columns() const { return kind == Kind::relu2 ? 1 : 2; }
  bool operator==(const ExpertActivation&) const = default;
};

// Returns activation(hidden) * weights, [rows, width]. hidden [rows, 2 width] with columns of gate and up
// (relu2: [rows, width]), weights [rows] in fp32 (fp64 for fp64). Below autograd.
HEDDLE_API at::Tensor activate(const ExpertActivation& how, const at::Tensor& hidden,
                               const at::Tensor& weights);

struct ActivationGradients {
  at::Tensor hidden, weights;  // gradients of the inputs, in their dtypes
  at::Tensor y;                // the recomputed output
};
// dy: the gradient of the output, [rows, width].
HEDDLE_API ActivationGradients activate_backward(const ExpertActivation& how, const at::Tensor& dy,
                                                 const at::Tensor& hidden, const at::Tensor& weights);

// Sorting tokens by expert.

// The tokens of each expert as rows, sorted by expert, then by token. A slot is one of a token's k choices:
// slot = token * k + choice.
struct ExpertRows {
  std::vector<int64_t> begins;  // [experts + 1], on the host; expert e has rows begins[e] to begins[e + 1]
  at::Tensor tokens;            // int64 [rows]: the token of each row
  at::Tensor slots;             // int64 [rows]: the slot of each row
  at::Tensor rows;              // int64 [tokens * k]: the row of each slot; -1: the slot has no expert
  int64_t count() const { return begins.back(); }
  int64_t of(int64_t expert) const { return begins[expert + 1] - begins[expert]; }
};

// Sorts the chosen experts [tokens, k] (int64; -1: none on this rank). Reads the counts on the host once. On
// meta all experts get equal counts. Throws Error{internal} for an invalid expert.
HEDDLE_API ExpertRows sort_by_expert(const at::Tensor& chosen, int64_t experts);

// Gathers the rows of x [tokens, width] into [rows, width].
HEDDLE_API at::Tensor take_rows(const at::Tensor& x, const ExpertRows& rows);

// Sums the rows of each token in the order of its choices: [rows, width] to [tokens, width]. A token without
// rows gets zeros.
HEDDLE_API at::Tensor combine_rows(const at::Tensor& of_rows, const ExpertRows& rows, int64_t tokens);

}  // namespace heddle::model

namespace heddle {

class WeightGradients;

namespace model {

// LoRA adapters of both products (Hu et al. 2021): each expert computes y = W x + scale * B (A x). Undefined
// tensors: no adapters.
struct ExpertAdapters {
  at::Tensor gate_up_a;  // [experts, rank, hidden]
  at::Tensor gate_up_b;  // [experts, columns * width, rank], rows in the order of gate_up
  at::Tensor down_a;     // [experts, rank, width]
  at::Tensor down_b;     // [experts, hidden, rank]
  double scale = 1;
};

// The grouped products of experts. Rows are sorted by expert; expert e has rows [begins[e], begins[e + 1]). A
// subclass may compute in another precision, such as fp8. Below autograd, for any device including meta and
// any dtype. May be called from several threads.
class HEDDLE_API ExpertProducts {
 public:
  virtual ~ExpertProducts();
  // Returns x [rows, in] times each expert's transposed weights [experts, out, in]: [rows, out].
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& weights,
                             std::span<const int64_t> begins) const;
  // Returns dy [rows, out] times the weights: [rows, in].
  virtual at::Tensor backward(const at::Tensor& dy, const at::Tensor& weights,
                              std::span<const int64_t> begins) const;
  // Returns dy^T x per expert: [experts, out, in]; zeros for an expert without rows.
  virtual at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                     std::span<const int64_t> begins) const;
};

// The parameters of all experts, and the biases of both products; undefined: no bias.
struct ExpertParameters {
  at::Tensor gate_up;            // [experts, columns * width, hidden] or [experts, columns, width, hidden]
  at::Tensor down;               // [experts, hidden, width]
  at::Tensor gate_up_bias = {};  // [experts, columns * width] or [experts, columns, width]
  at::Tensor down_bias = {};     // [experts, hidden]
  double bias_share = 1;         // fraction of down_bias that this rank adds; other ranks add the rest
  ExpertAdapters adapters = {};
  std::shared_ptr<const ExpertProducts> products = nullptr;  // null: the default products
};

// Returns the sum over each token's experts of weight * down(activation(gate_up(x))). x [tokens, hidden];
// routing.experts are indices into the parameters. Returns [tokens, hidden] in the dtype of x; zeros for a
// token without experts. One node, which saves x and the first product. An expert without tokens gets a zero
// gradient. If `later` defers, it receives the weight gradients.
HEDDLE_API at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& parameters,
                              const ExpertActivation& activation, WeightGradients* later = nullptr);

}  // namespace model

// The experts of a layer, with slots named by the family: gate_up [experts, columns, width, hidden], down
// [experts, hidden, width] and optional biases [experts, columns, width] and [experts, hidden]. If the
// activation has one column or interleaved columns, the dims columns and width are merged. A parallelizer may
// point all slots at a part of the experts, and at a part of the width, which is dim split_dim() of gate_up
// and its bias.
class HEDDLE_API Experts : public Module {
 public:
  struct Shape {
    int64_t experts = 0, hidden = 0, width = 0;
    model::ExpertActivation activation = {};
    bool bias = false;
  };
  struct Names {
    std::string gate_up, down;
    std::string gate_up_bias = {}, down_bias = {};
  };
  Experts(const Shape& shape, const Names& names, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "experts"; }
  ModuleTraits traits() const override;

  at::Tensor gate_up, down, gate_up_bias, down_bias;

  // Adds adapter slots lora_gate_and_up_A, lora_gate_and_up_B, lora_down_A and lora_down_B in the layouts of
  // model::ExpertAdapters. `a` returns the Init of an A matrix for its input size; B starts at zero. Called
  // once, before the experts are split. Afterwards etp is refused.
  struct AdapterShape {
    int64_t rank = 8;
    double scale = 1;
    std::function<Init(int64_t in)> a;
  };
  void adapt(const AdapterShape& shape);
  model::ExpertAdapters adapters;

  // Replaces the products of the parameters; adapters and biases are still added. Afterwards etp is refused.
  // Throws Error{plugin_conflict}, naming both plugins, when called a second time.
  void multiply_by(const std::string& plugin, std::shared_ptr<const model::ExpertProducts> products);

  // The seam of expert parallelism: links send tokens to the ranks of their experts and call the rest, or
  // replace the computation. The innermost computation, local(), uses expert indices of this rank. x [tokens,
  // hidden]: this rank's tokens. routing: indices over all experts of the model. Returns [tokens, hidden].
  using Instead = Chain<at::Tensor(const at::Tensor& x, const model::Routing& routing, Experts& experts,
                                   const Batch& batch, model::Meanwhile& meanwhile)>;
  // A link must return a tensor like x: equal rows, width and dtype. Otherwise Error{plugin_failed} names its
  // plugin.
  Instead instead{"Experts::instead", &Experts::check_result};

  // Runs the links around local().
  at::Tensor run(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                 model::Meanwhile& meanwhile);
  // Computes this rank's experts: model::experts().
  at::Tensor local(const at::Tensor& x, const model::Routing& routing, const Batch& batch);

  // Declares that this many ranks each have a part of the width, so each adds 1 / parts of down_bias.
  void split_among(int parts) { parts_ = parts; }
  int parts() const { return parts_; }
  int64_t split_dim() const { return columns_apart() ? 2 : 1; }

  const Shape& shape() const { return shape_; }     // sizes in the whole model
  int64_t held() const { return gate_up.size(0); }  // number of experts in the parameters

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws; use run()

 private:
  static void check_result(const std::string& plugin, const at::Tensor& result, const at::Tensor& x,
                           const model::Routing& routing, Experts& experts, const Batch& batch,
                           model::Meanwhile& meanwhile);
  // Whether all gate columns come before the up columns, so that a part of the width is not one range of
  // both.
  bool columns_apart() const { return shape_.activation.columns() > 1 && !shape_.activation.interleaved; }

  Shape shape_;
  int parts_ = 1;
  std::string products_of_;  // the plugin that set products_
  std::shared_ptr<const model::ExpertProducts> products_;
};

// A mixture-of-experts layer: router, experts and shared expert.

// Maps hidden states [tokens, hidden] to [tokens, hidden]. Has the children "gate" and "experts", and
// optional children: a shared expert and its gate, and the projections to and from a latent.
class HEDDLE_API MoeLayer : public Module {
 public:
  MoeLayer(const RouterConfig& router, const Experts::Shape& experts, const Experts::Names& names,
           const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "moe_layer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // Adds a shared expert, whose output for every token is added.
  void add_shared(std::string name, std::unique_ptr<Module> shared);
  // Adds linear layers with these names before and after the experts, whose width differs from the hidden
  // size.
  void add_latent(std::array<std::string, 2> names, const Init& init, const at::TensorOptions& options);
  // Adds a norm of the experts' sum before it is projected back from the latent (Kimi K3).
  void add_latent_norm(std::string name, std::unique_ptr<Module> norm);
  // Adds a norm whose output goes to the experts and the shared expert. The router still gets x (Gemma 4).
  void add_norm(std::string name, std::unique_ptr<Module> norm);
  // Adds a linear layer to one column that gates the shared expert: sigmoid(x W^T) multiplies its output
  // (Qwen2).
  void add_shared_gate(std::string name, const Init& init, const at::TensorOptions& options);

  Router& router() { return gate_; }
  Experts& experts() { return experts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor of_shared(const at::Tensor& x, const Batch& batch);
  at::Tensor of_experts(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                        model::Meanwhile& meanwhile);

  Router gate_;
  Experts experts_;
  std::unique_ptr<Module> norm_;                     // null if the experts get x
  std::unique_ptr<Linear> to_latent_, from_latent_;  // null if the experts compute on hidden states
  std::unique_ptr<Module> latent_norm_;              // may be null
  std::unique_ptr<Module> shared_;
  std::unique_ptr<Linear> shared_gate_;
};

}  // namespace heddle
