// The experts of a mixture: feed-forward networks of one shape in stacked parameters, each for some tokens.
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

// What stands between the two products of an expert, with the router's weight of each row.

struct ExpertActivation {
  enum class Kind {
    swiglu,          // silu(gate) * up
    limited_swiglu,  // silu(gate) of at most `limit`, times up within -limit .. limit: Step-3.5
    clamped_swiglu,  // gate and up clamped, gate * sigmoid(alpha * gate) * (up + shift): gpt_oss, DeepSeek-V4
    geglu,           // gelu(gate) * up, the exact gelu
    geglu_tanh,      // the same with the tanh form of gelu: Gemma 4
    relu2,           // relu(x)^2, of one product of half the width
    situ             // gated_by_situ(): Kimi K3
  } kind = Kind::swiglu;
  double alpha = 1.702, limit = 7.0;  // of clamped_swiglu; limit of limited_swiglu too
  bool interleaved = false;           // columns of gate and up in turn; else the gate's before the up's
  Situ situ = {};
  double shift = 1;  // of clamped_swiglu
  // Columns of the first product for one of the second.
  int64_t columns() const { return kind == Kind::relu2 ? 1 : 2; }
  bool operator==(const ExpertActivation&) const = default;
};

// hidden [rows, 2 width], columns of gate and up (relu2: [rows, width]), weights [rows] in fp32 (fp64 for
// fp64): activation(hidden) * weight, [rows, width]. Below autograd.
HEDDLE_API at::Tensor activate(const ExpertActivation& how, const at::Tensor& hidden,
                               const at::Tensor& weights);

struct ActivationGradients {
  at::Tensor hidden, weights;  // of the inputs, in their dtypes
  at::Tensor y;                // the output, computed again
};
// dy [rows, width].
HEDDLE_API ActivationGradients activate_backward(const ExpertActivation& how, const at::Tensor& dy,
                                                 const at::Tensor& hidden, const at::Tensor& weights);

// The tokens of each expert as rows: sorted by expert, in the order of the tokens within one.

// A slot is one of the k choices of a token: slot = token * k + choice.
struct ExpertRows {
  std::vector<int64_t>
      begins;         // [experts + 1], on the host: the rows of expert e are begins[e] .. begins[e + 1]
  at::Tensor tokens;  // int64 [rows]: the token of each row
  at::Tensor slots;   // int64 [rows]: the slot of each row
  at::Tensor rows;    // int64 [tokens * k]: the row of each slot; -1: it has no expert
  int64_t count() const { return begins.back(); }
  int64_t of(int64_t expert) const { return begins[expert + 1] - begins[expert]; }
};

// From the chosen experts [tokens, k] (int64; -1: none here). Reads the counts on the host once, on any
// device. On meta every expert gets the same number. Throws Error{internal} for an expert that does not
// exist.
HEDDLE_API ExpertRows sort_by_expert(const at::Tensor& chosen, int64_t experts);

// The rows of x [tokens, width]: [rows, width].
HEDDLE_API at::Tensor take_rows(const at::Tensor& x, const ExpertRows& rows);

// The sum of each token's rows, in the order of its choices: [rows, width] to [tokens, width]. Zeros for a
// token without a row.
HEDDLE_API at::Tensor combine_rows(const at::Tensor& of_rows, const ExpertRows& rows, int64_t tokens);

}  // namespace heddle::model

namespace heddle {

class WeightGradients;

namespace model {

// Adapters of both products (Hu et al. 2021): beside y = W x each expert computes scale * B (A x). Undefined:
// none.
struct ExpertAdapters {
  at::Tensor gate_up_a;  // [experts, rank, hidden]
  at::Tensor gate_up_b;  // [experts, columns * width, rank], rows as those of gate_up
  at::Tensor down_a;     // [experts, rank, width]
  at::Tensor down_b;     // [experts, hidden, rank]
  double scale = 1;
};

// The products of experts as they are: of rows that are sorted by expert, those of expert e are begins[e] ..
// begins[e + 1]. A subclass multiplies other numbers, in fp8 for one. Below autograd, on any device and meta,
// of any dtype; called from several threads.
class HEDDLE_API ExpertProducts {
 public:
  virtual ~ExpertProducts();
  // x [rows, in], weights [experts, out, in]: each row times its expert's matrix transposed, [rows, out].
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& weights,
                             std::span<const int64_t> begins) const;
  // dy [rows, out] times the matrices: [rows, in].
  virtual at::Tensor backward(const at::Tensor& dy, const at::Tensor& weights,
                              std::span<const int64_t> begins) const;
  // dy^T x of each expert's rows: [experts, out, in]; zeros for an expert without rows.
  virtual at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                     std::span<const int64_t> begins) const;
};

// The parameters of all experts, and biases of the two products; undefined: none.
struct ExpertParameters {
  at::Tensor gate_up;            // [experts, columns * width, hidden], or [experts, columns, width, hidden]
  at::Tensor down;               // [experts, hidden, width]
  at::Tensor gate_up_bias = {};  // [experts, columns * width], or [experts, columns, width]
  at::Tensor down_bias = {};     // [experts, hidden]
  double bias_share = 1;         // of down_bias that is added here: other ranks add the rest
  ExpertAdapters adapters = {};
  std::shared_ptr<const ExpertProducts> products = nullptr;  // null: as they are
};

// The sum over a token's experts of weight * down(activation(gate_up(x))). x [tokens, hidden]; the chosen
// experts count from 0 in the parameters. Returns [tokens, hidden] in x's dtype; zeros for a token without an
// expert. One node: it keeps x and the first product. Every expert has a gradient, zeros where it got no
// token; the parameters' gradients are left in `later` where that defers.
HEDDLE_API at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& parameters,
                              const ExpertActivation& activation, WeightGradients* later = nullptr);

}  // namespace model

// Slots named by the family: gate_up [experts, columns, width, hidden], down [experts, hidden, width] and, if
// asked for, their biases [experts, columns, width] and [experts, hidden]. Where the activation has one
// column or columns in turn, these are one dim of columns * width. A parallelizer may point all slots at some
// of the experts, and at some of the width, which is dim split_dim() of gate_up and its bias.
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

  // Slots of adapters: lora_gate_and_up_A, lora_gate_and_up_B, lora_down_A and lora_down_B, in the layouts of
  // model::ExpertAdapters. `a` gives the first values of both A for their inputs; B begins with zeros. The
  // experts are then refused along etp. Once, before the experts are split.
  struct AdapterShape {
    int64_t rank = 8;
    double scale = 1;
    std::function<Init(int64_t in)> a;
  };
  void adapt(const AdapterShape& shape);
  model::ExpertAdapters adapters;

  // What multiplies in place of the parameters' own products; adapters and biases are added to it. The
  // experts are then refused along etp. Throws Error{plugin_conflict} with both plugins for the second.
  void multiply_by(const std::string& plugin, std::shared_ptr<const model::ExpertProducts> products);

  // The seam of expert parallelism: links bring tokens to their experts around the computation of the experts
  // that this rank holds, which counts them from 0 (local()), or compute in its place. x [tokens, hidden] are
  // this rank's tokens, routing counts all experts of the model. Returns [tokens, hidden].
  using Instead = Chain<at::Tensor(const at::Tensor& x, const model::Routing& routing, Experts& experts,
                                   const Batch& batch, model::Meanwhile& meanwhile)>;
  // What a link returns is as x: the same rows, width and dtype; else Error{plugin_failed} with its plugin.
  Instead instead{"Experts::instead", &Experts::check_result};

  // The links, and within them local().
  at::Tensor run(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                 model::Meanwhile& meanwhile);
  // With the parameters as they are: model::experts().
  at::Tensor local(const at::Tensor& x, const model::Routing& routing, const Batch& batch);

  // So many ranks hold parts of the width: each adds 1 / parts of down_bias.
  void split_among(int parts) { parts_ = parts; }
  int parts() const { return parts_; }
  int64_t split_dim() const { return columns_apart() ? 2 : 1; }

  const Shape& shape() const { return shape_; }     // of the whole model
  int64_t held() const { return gate_up.size(0); }  // experts in the parameters

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: run() takes a routing

 private:
  static void check_result(const std::string& plugin, const at::Tensor& result, const at::Tensor& x,
                           const model::Routing& routing, Experts& experts, const Batch& batch,
                           model::Meanwhile& meanwhile);
  // The gate's columns before those of up: a part of the width is no range of both.
  bool columns_apart() const { return shape_.activation.columns() > 1 && !shape_.activation.interleaved; }

  Shape shape_;
  int parts_ = 1;
  std::string products_of_;  // the plugin
  std::shared_ptr<const model::ExpertProducts> products_;
};

// A feed-forward layer of experts: a router, the experts, and what all tokens share.

// Hidden states [tokens, hidden] in and out. Children "gate" and "experts", and those that are added: a
// shared expert and its gate, and the products around experts of a latent.
class HEDDLE_API MoeLayer : public Module {
 public:
  MoeLayer(const RouterConfig& router, const Experts::Shape& experts, const Experts::Names& names,
           const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "moe_layer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // `shared` computes with every token; its output is added.
  void add_shared(std::string name, std::unique_ptr<Module> shared);
  // The experts are of another width than the hidden states: a linear layer before them and one after, by
  // these names.
  void add_latent(std::array<std::string, 2> names, const Init& init, const at::TensorOptions& options);
  // The experts' sum goes through it before it leaves the latent (Kimi K3).
  void add_latent_norm(std::string name, std::unique_ptr<Module> norm);
  // The experts and the shared one compute with norm(x), and the router with x (Gemma 4).
  void add_norm(std::string name, std::unique_ptr<Module> norm);
  // sigmoid(x W^T) multiplies the shared expert's output (Qwen2's): a linear layer to one column.
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
  std::unique_ptr<Module> norm_;                     // null: the experts compute with what comes
  std::unique_ptr<Linear> to_latent_, from_latent_;  // null: the experts compute with hidden states
  std::unique_ptr<Module> latent_norm_;              // null: none
  std::unique_ptr<Module> shared_;
  std::unique_ptr<Linear> shared_gate_;
};

}  // namespace heddle
