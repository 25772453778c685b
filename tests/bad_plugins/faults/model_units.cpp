// Modules of the small decoder, correct without HEDDLE_FAULT.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "fault.h"
#include "heddle/model/module_unit.h"
#include "heddle/model/region.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "model.h"

namespace faults {
namespace {

using heddle::Batch;
using heddle::Init;
using heddle::Linear;
using heddle::Module;
using heddle::ModuleUnit;

constexpr int64_t kHeads = 2;

std::atomic<int64_t> backwards{0};

struct WrongTanh : torch::autograd::Function<WrongTanh> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor y = is("changes_a_kept_result") ? doubled_half(x) : at::tanh(x);
    context->save_for_backward({y});
    return y;
  }
  // Returns tanh(x), and doubles a result that a region keeps, so that a recomputation doubles it again.
  static at::Tensor doubled_half(const at::Tensor& x) {
    return heddle::model::once(heddle::model::Operator::attention, [&] { return at::tanh(x) * 0.5; })
        .mul_(2)
        .clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (is("backward_throws")) throw std::runtime_error("no workspace for a gradient");
    const at::Tensor y = context->get_saved_variables()[0];
    at::Tensor gradient = gradients[0] * (1 - y * y) * (is("wrong_gradient") ? 1.1 : 1.0);
    if (is("gradient_keeps_state")) gradient = gradient * (1 + 0.01 * static_cast<double>(backwards++ / 4));
    if (is("gradient_of_first_row")) gradient.narrow(0, 1, gradient.size(0) - 1).fill_(0);
    return {gradient};
  }
};

// Identity whose gradient is twice too large.
struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

bool has_auxiliary_loss() {
  return is("auxiliary_loss") || is("auxiliary_counts_padding") || is("auxiliary_gradient_doubled") ||
         is("auxiliary_mean_of_part") || is("auxiliary_not_declared");
}

// Sequence parallelism refuses layers with parameters outside of linear layers.
bool has_gain() {
  return !is("no_gain") && !is("expects_all_tokens");
}

std::unique_ptr<heddle::MoeLayer> make_experts(const Config& config, const at::TensorOptions& options) {
  heddle::RouterConfig router;
  router.hidden = config.hidden_size, router.experts = 4, router.rule.top_k = 2;
  return std::make_unique<heddle::MoeLayer>(router,
                                            heddle::Experts::Shape{4, config.hidden_size, config.hidden_size},
                                            heddle::Experts::Names{"gate_up", "down"}, Init{}, options);
}

class Layer : public Module {
 public:
  Layer(const Config& config, const at::TensorOptions& options)
      : config_(config),
        q(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        k(config.hidden_size, config.hidden_size,
          is("zero_gradient") ? Linear::Bias::zeros : Linear::Bias::none, Init{}, options),
        v(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        o(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        up(config.hidden_size, 2 * config.hidden_size, Linear::Bias::zeros, Init{}, options),
        down(2 * config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        core(config.hidden_size / kHeads),
        gain(at::empty({config.hidden_size}, options)),
        auxiliary("faulty/size", is("auxiliary_mean_of_part") ? heddle::LossDivisor::microbatches
                                                              : heddle::LossDivisor::label_tokens),
        metric("faulty/tokens", heddle::Combine::sum) {
    gain.fill_(1).set_requires_grad(true);
    if (is("shares_between_models")) {
      static const at::Tensor shared = at::ones({config.hidden_size});
      if (!gain.is_meta() && gain.scalar_type() == at::kFloat) gain = shared.detach().set_requires_grad(true);
    }
    if (is("random_buffer")) noise = at::rand({config.hidden_size}, at::kFloat);
    if (is("values_not_drawn_from_the_generator") && !q.weight.is_meta()) {
      const at::NoGradGuard no_gradients;
      q.weight.add_(static_cast<double>(++backwards));
    }
    add_child("q", q);
    add_child("k", k);
    add_child("v", v);
    add_child("o", o);
    if (!is("child_not_registered")) add_child("up", up);
    add_child("down", down);
    if (!is("core_not_registered")) add_child("core", core);
    if (has_gain() && !is("slot_not_registered")) add_slot("gain", gain, {Init::Kind::ones, 0});
    if (is("slot_of_two_names")) add_slot("second_gain", gain, {Init::Kind::ones, 0});
    if (has_experts()) {
      experts = make_experts(config, options);
      add_child("experts", *experts);
    }
    if (has_auxiliary_loss() && !is("auxiliary_not_declared")) add_side_output(auxiliary);
    if (is("metric_counts_padding")) add_side_output(metric);
  }
  std::string_view kind() const override { return "decoder_layer"; }
  heddle::ModuleTraits traits() const override {
    return {.tokens = is("says_that_it_mixes") ? heddle::TokenUse::mixes : heddle::TokenUse::each_alone};
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    x = spoilt(std::move(x), batch);
    if (has_experts()) x = x + of_experts(x, batch);
    if (is("keeps_its_values")) return with_own_operators(x);
    x = x + o.call(core.attend(q.call(x, batch), k.call(x, batch), v.call(x, batch), batch), batch);
    if (is("mixes_tokens") || is("says_that_it_mixes")) {
      const at::Tensor rows = x.view({batch.tokens.size(0), -1, x.size(-1)});
      x = x + at::cat({at::zeros_like(rows.narrow(1, 0, 1)), rows.narrow(1, 0, rows.size(1) - 1)}, 1)
                  .reshape(x.sizes());
    }
    const at::Tensor inner =
        WrongTanh::apply(up.call(has_gain() && !is("unused_slot") ? x * gain : x, batch));
    const double scale = is("key_ignored") || is("two_faults") ? 0.5 : config_.scale;
    x = x + scale * down.call(is("detaches") ? inner.detach() : inner, batch);
    return has_auxiliary_loss() ? with_auxiliary_loss(x, batch) : x;
  }

 private:
  // Applies the selected fault to the hidden states.
  at::Tensor spoilt(at::Tensor x, const Batch& batch) {
    if (is("throws_in_forward")) throw std::out_of_range("table of layers");
    if (is("loops_in_forward"))
      for (;;) {
      }
    if (is("exits_in_forward")) std::_Exit(0);
    if (is("needs_even_rows") && batch.tokens.size(0) % 2 == 1) throw std::runtime_error("an odd row");
    if (is("changes_tokens")) batch.tokens.fill_(1);
    if (is("changes_labels") && batch.labels.defined()) batch.labels.fill_(1);
    if (is("changes_positions") && batch.positions.defined()) batch.positions.fill_(0);
    if (is("changes_documents") && batch.documents.defined()) batch.documents.mul_(0);
    if (is("changes_hidden")) x.mul_(1.01);
    if (is("keeps_state")) x = x * (1 + 0.01 * static_cast<double>(++calls_));
    if (is("counts_evaluations") && !at::GradMode::is_enabled()) ++calls_;
    if (is("counts_evaluations")) x = x * (1 + 0.01 * static_cast<double>(calls_));
    if (is("keeps_first_batch")) x = x + (first_.defined() ? first_ : first_ = x.detach().mean() * 0.1);
    if (is("is_random")) x = x + 0.1 * at::rand_like(x);
    if (is("is_random_in_training") && at::GradMode::is_enabled()) x = x + 0.1 * at::rand_like(x);
    if (is("random_buffer")) x = x + noise.to(x.options());
    if (is("mean_over_rows")) x = x - x.mean();
    if (is("expects_all_tokens"))
      x = x * (static_cast<double>(x.size(0)) / static_cast<double>(batch.tokens.numel()));
    if (is("reads_on_the_host") && !x.is_meta() && x.scalar_type() == at::kFloat)
      first_number_ = x.const_data_ptr<float>()[0];
    if (is("stream_of_its_own")) x = added_elsewhere(x);
    if (is("computes_in_bf16")) x = x.to(at::kBFloat16).to(x.scalar_type());
    if (is("gradients_off")) at::GradMode::set_enabled(false);
    if (is("sees_the_future")) {
      const at::Tensor rows = x.view({batch.tokens.size(0), -1, x.size(-1)});
      x = x + rows.mean(1, true).expand_as(rows).reshape(x.sizes());
    }
    if (is("metric_counts_padding")) metric.add(x.detach().sum(), batch);
    return x;
  }

  // Computes with LibTorch's operators alone, whose nodes keep their values.
  at::Tensor with_own_operators(at::Tensor x) {
    const at::Tensor y = at::linear(x, q.weight) * at::linear(x, k.weight) + at::linear(x, v.weight);
    x = x + at::linear(y, o.weight);
    const at::Tensor inner = at::tanh(at::linear(x * gain, up.weight, up.bias));
    return x + config_.scale * at::linear(inner, down.weight);
  }

  // The fault scales by the experts of this rank, which are all experts unless ep_size splits them.
  at::Tensor of_experts(const at::Tensor& x, const Batch& batch) {
    const at::Tensor y = experts->call(x, batch);
    return is("experts_by_held") ? y * (static_cast<double>(experts->experts().held()) / 4) : y;
  }

  // Returns x + x / 2 - x / 2. The subtraction runs on another stream without synchronization.
  static at::Tensor added_elsewhere(const at::Tensor& x) {
    if (!x.is_cuda()) return x;
    const at::Tensor half = x * 0.5;
    const c10::impl::VirtualGuardImpl device(x.device().type());
    const c10::StreamGuard other(device.getStreamFromGlobalPool(x.device()));
    return x + half - half;
  }

  // Adds the mean square of the hidden states of all non-padding tokens as an auxiliary loss.
  at::Tensor with_auxiliary_loss(const at::Tensor& x, const Batch& batch) {
    at::Tensor squares = (x * x).mean(-1);
    if (batch.padding.defined() && !is("auxiliary_counts_padding"))
      squares = squares.masked_fill(batch.padding.reshape({-1}), 0);
    at::Tensor loss = is("auxiliary_mean_of_part") ? squares.mean() : squares.sum();
    if (is("auxiliary_gradient_doubled")) loss = Doubled::apply(loss);
    return auxiliary.add(x, 0.1 * loss, batch);
  }

  Config config_;
  Linear q, k, v, o, up, down;
  heddle::AttentionCore core;
  std::unique_ptr<heddle::MoeLayer> experts;  // null without experts
  at::Tensor gain, noise, first_;
  heddle::AuxiliaryLoss auxiliary;
  heddle::Metric metric;
  int64_t calls_ = 0;
  float first_number_ = 0;
};

class First : public Module {
 public:
  First(const Config& config, const at::TensorOptions& options)
      : table(config.vocab_size, config.hidden_size, -1, Init{}, options), most_(config.max_positions) {
    add_child("table", table);
  }
  std::string_view kind() const override { return "embeddings"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  heddle::Embedding table;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override {
    if (is("positions_too_many") && batch.tokens.size(1) > most_)
      throw std::out_of_range("table of positions");
    return table.call(tokens, batch);
  }

 private:
  int64_t most_;
};

class Last : public Module {
 public:
  Last(const Config& config, const at::TensorOptions& options)
      : head(config.hidden_size, config.vocab_size, Linear::Bias::none, Init{}, options) {
    add_child("head", head);
    add_child("loss", loss);
  }
  std::string_view kind() const override { return "head"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  const at::Tensor* table = nullptr;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    if (table != nullptr) x = x + table->mean();
    if (!batch.labels.defined()) {
      const at::Tensor logits = head.call(x, batch);
      if (is("logits_turned")) return logits.flip(0);
      return is("logits_of_one_row") ? logits.narrow(0, 0, 1)
                                     : logits.view({batch.tokens.size(0), -1, logits.size(-1)});
    }
    Batch all = batch;
    if (is("counts_ignored")) all.labels = batch.labels.clamp_min(0);
    if (is("shifts_labels")) all.labels = batch.labels.roll(1, 1);
    at::Tensor sum = loss.of(x, head, all);
    if (is("mean_loss")) sum = sum / static_cast<double>(batch.tokens.numel());
    if (is("loss_in_the_models_dtype")) sum = sum.to(x.scalar_type());
    return is("many_losses") ? at::cat({sum.view({1}), sum.view({1})}) * 0.5 : sum;
  }

 private:
  Linear head;
  heddle::TokenLoss loss;
};

heddle::TensorPlan plan() {
  heddle::TensorPlan out = {{"layers.*.q", "colwise"},  {"layers.*.k", "colwise"},
                            {"layers.*.v", "colwise"},  {"layers.*.o", "rowwise"},
                            {"layers.*.up", "colwise"}, {"layers.*.down", "rowwise"}};
  if (is("pattern_matches_nothing")) out.emplace_back("layers.*.gate_proj", "colwise");
  if (is("style_is_unknown")) out[4].second = "colwize";
  if (is("plan_is_wrong"))
    out = {{"layers.*.up", "colwise_rep"}, {"layers.*.down", "colwise"}, {"layers.*.q", "colwise"}};
  if (is("plan_loses_a_sum")) out.pop_back();
  return out;
}

}  // namespace

heddle::Units make_units(const Config& config, const at::TensorOptions& options) {
  heddle::Units units;
  const auto all = std::make_shared<const heddle::TensorPlan>(plan());
  const auto add = [&](const std::string& name, const std::string& prefix, std::unique_ptr<Module> module) {
    auto unit = std::make_unique<ModuleUnit>(name, prefix, std::move(module));
    unit->set_tensor_plan(
        is("plan_of_one_unit") && !units.empty() ? std::make_shared<const heddle::TensorPlan>() : all);
    units.push_back(std::move(unit));
  };
  auto first = std::make_unique<First>(config, options);
  auto last = std::make_unique<Last>(config, options);
  if (is("uses_another_units_parameter")) last->table = &first->table.weight;
  add("embed", "embed", std::move(first));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    add(is("units_of_one_name") ? "layers.0" : name, name, std::make_unique<Layer>(config, options));
  }
  add("last", "last", std::move(last));
  static std::atomic<int> calls{0};
  if (is("units_change") && ++calls % 2 == 0) units.erase(units.begin() + 1);
  return units;
}

}  // namespace faults
