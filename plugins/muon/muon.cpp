// Muon: selection of the matrices, exchange of whole matrices in rounds, and updates.
#include "muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "heddle/train/replicated.h"
#include "heddle/train/step.h"

namespace heddle::muon {
namespace {

struct Coefficients {
  double a, b, c;
};
constexpr Coefficients kSteps[] = {{4.0848, -6.8946, 2.9270},
                                   {3.9505, -6.3029, 2.6377},
                                   {3.7418, -5.5913, 2.3037},
                                   {2.8769, -3.1427, 1.2046},
                                   {2.8366, -3.0525, 1.2012}};

// Runs five steps of a Newton-Schulz iteration with the coefficients of dion (Jordan et al. 2024), in the
// dtype of `matrix`. Deterministic: equal inputs give equal bits.
at::Tensor newton_schulz(const at::Tensor& matrix, double epsilon) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (train::replicated_norm(x) + epsilon);
  for (const auto& [a, b, c] : kSteps) {
    const at::Tensor product = train::replicated_product(x, x.t());
    const at::Tensor polynomial = product * b + train::replicated_product(product, product) * c;
    x = x * a + train::replicated_product(polynomial, x);
  }
  return tall ? x.t() : x;
}

bool holds(const std::string& name, const char* word) {
  return name.find(word) != std::string::npos;
}

bool is_embedding(const std::string& name) {
  return holds(name, "embed") || holds(name, "wte") || holds(name, "wpe");
}

// Returns true for parameters that AdamW updates, and sets their learning rates as dion's groups do: no
// weight decay for embeddings and the head, and the head's rate is divided by the square root of its input
// size.
bool is_scalar(TrainedShard& one, const Config& config) {
  const Shard& shard = *one.shard;
  const bool head = holds(shard.name, "lm_head") && !is_embedding(shard.name),
             embedding = is_embedding(shard.name), matrix = shard.shape.size() == 2;
  const double scalar = config.scalar_lr.value_or(1);
  if (head || embedding) one.wd_mult = 0;
  if (embedding)
    one.lr_mult *= config.embed_lr.value_or(scalar);
  else if (head)
    one.lr_mult *=
        config.lm_head_lr.value_or(matrix ? 1 / std::sqrt(static_cast<double>(shard.shape[1])) : 1);
  else if (!matrix)
    one.lr_mult *= scalar;
  return head || embedding || !matrix;
}

double lr_of_shape(const std::optional<std::string>& rule, const std::vector<int64_t>& shape) {
  const auto out = static_cast<double>(shape[0]), in = static_cast<double>(shape[1]);
  if (!rule) return 1;
  return *rule == "rms_norm" ? 0.2 * std::sqrt(std::max(out, in)) : std::sqrt(out / in);
}

// Returns the view of a shard's box in the whole matrix.
at::Tensor box_in(const at::Tensor& whole, const Shard& shard) {
  return whole.narrow(0, shard.offset[0], shard.tensor.size(0))
      .narrow(1, shard.offset[1], shard.tensor.size(1));
}

AdamWConfig rest_of(const Config& config) {
  AdamWConfig out;
  const std::vector<double>& betas = config.scalar_betas ? *config.scalar_betas : config.betas;
  out.beta1 = betas[0];
  out.beta2 = betas[1];
  out.eps = config.scalar_eps.value_or(config.epsilon);
  return out;
}

}  // namespace

Muon::Muon(const Config& config) : config_(config), rest_(train::make_adamw(rest_of(config))) {}
Muon::~Muon() = default;

Muon::Family& Muon::family_of(const TrainedShard& one) {
  const std::vector<std::string>& axes = one.shard->axes;
  const auto found = std::find_if(families_.begin(), families_.end(), [&](const Family& family) {
    const at::Tensor& first = family.matrices.front().boxes.front().of.weight;
    return family.axes == axes && first.options().dtype() == one.weight.dtype() &&
           first.device() == one.weight.device();
  });
  if (found != families_.end()) return *found;
  families_.push_back({nullptr, axes, {}});
  return families_.back();
}

void Muon::start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) {
  std::vector<TrainedShard> scalars, matrices;
  for (TrainedShard one : shards) (is_scalar(one, config_) ? scalars : matrices).push_back(one);
  rest_->start(scalars, mesh);
  std::stable_sort(matrices.begin(), matrices.end(), [](const TrainedShard& a, const TrainedShard& b) {
    return a.shard->name < b.shard->name;
  });
  for (const TrainedShard& one : matrices) {
    Family& family = family_of(one);
    const bool is_next =
        !family.matrices.empty() && family.matrices.back().boxes.front().of.shard->name == one.shard->name;
    if (!is_next) family.matrices.push_back({{}, lr_of_shape(config_.adjust_lr, one.shard->shape)});
    family.matrices.back().boxes.push_back({one, at::zeros_like(one.weight)});
  }
  for (Family& family : families_) {
    std::string joined;
    for (const std::string& axis : mesh.parts_of(family.axes))
      if (mesh.size(axis) > 1) joined += (joined.empty() ? "" : "+") + axis;
    if (!joined.empty()) family.ranks = &mesh.group(joined);
  }
}

std::vector<OptimizerState> Muon::state() {
  std::vector<OptimizerState> out = rest_->state();
  for (const Family& family : families_)
    for (const Matrix& matrix : family.matrices)
      for (const Box& box : matrix.boxes)
        out.push_back({box.of.shard, {box_state(*box.of.shard, "momentum", box.momentum)}});
  return out;
}

void Muon::update(const OptimizerUpdate& update) {
  const at::NoGradGuard no_gradients;
  rest_->update(update);
  for (Family& family : families_) {
    const size_t round = family.ranks == nullptr ? 1 : static_cast<size_t>(family.ranks->size());
    for (size_t first = 0; first < family.matrices.size(); first += round)
      update_round(family, first, update);
  }
}

// Updates the momentum with the gradient and returns the direction. Undefined without a gradient. Replicas
// compute direction() and apply() separately and need the same bits, so products and sums are separate
// operations: some processors fuse them.
at::Tensor Muon::direction(const Box& box) const {
  const at::Tensor& gradient = box.of.shard->tensor.grad();
  if (!gradient.defined()) return {};
  const at::Tensor own = gradient.to(box.momentum.scalar_type());
  box.momentum.mul_(config_.mu).add_(own);
  return config_.nesterov ? own + box.momentum * config_.mu : box.momentum;
}

// Runs one round: each rank sends its boxes of the round's matrices, receives one whole matrix, and returns
// its update. A box without a gradient is zero, and then so is the whole matrix.
void Muon::update_round(Family& family, size_t first, const OptimizerUpdate& update) const {
  const int64_t ranks = family.ranks == nullptr ? 1 : family.ranks->size();
  const size_t last = std::min(family.matrices.size(), first + static_cast<size_t>(ranks));
  int64_t longest = 0;
  const auto shape_of = [](const Matrix& matrix) -> const std::vector<int64_t>& {
    return matrix.boxes.front().of.shard->shape;
  };
  for (size_t i = first; i < last; ++i)
    longest = std::max(longest, shape_of(family.matrices[i])[0] * shape_of(family.matrices[i])[1]);
  const auto options = family.matrices[first].boxes.front().of.weight.options();
  const at::Tensor all = at::zeros({ranks, longest}, options);
  const auto whole_in = [&](const at::Tensor& flat, const Matrix& matrix) {
    const std::vector<int64_t>& shape = shape_of(matrix);
    return flat.narrow(0, 0, shape[0] * shape[1]).view(shape);
  };
  bool any = false;
  for (size_t i = first; i < last; ++i)
    for (const Box& box : family.matrices[i].boxes)
      if (const at::Tensor part = direction(box); part.defined()) {
        box_in(whole_in(all[static_cast<int64_t>(i - first)], family.matrices[i]), *box.of.shard).copy_(part);
        any = true;
      }
  if (family.ranks == nullptr && !any) return;
  at::Tensor mine = all[0];
  if (family.ranks != nullptr) {
    mine = at::zeros({longest}, options);
    family.ranks->reduce_scatter(mine, all)->wait();
  }
  if (const size_t own = first + (family.ranks == nullptr ? 0 : family.ranks->rank()); own < last) {
    const at::Tensor whole = whole_in(mine, family.matrices[own]);
    whole.copy_(newton_schulz(whole, config_.epsilon));
  }
  if (family.ranks != nullptr) family.ranks->all_gather(all, mine)->wait();
  for (size_t i = first; i < last; ++i)
    apply(family.matrices[i], whole_in(all[static_cast<int64_t>(i - first)], family.matrices[i]), update);
}

void Muon::apply(const Matrix& matrix, const at::Tensor& whole, const OptimizerUpdate& update) const {
  for (const Box& box : matrix.boxes) {
    if (!box.of.shard->tensor.grad().defined()) continue;
    const double lr = update.lr * box.of.lr_mult;
    box.of.weight.mul_(1 - lr * update.weight_decay * box.of.wd_mult);
    box.of.weight.sub_(box_in(whole, *box.of.shard) * (lr * matrix.lr_mult));
  }
}

}  // namespace heddle::muon
