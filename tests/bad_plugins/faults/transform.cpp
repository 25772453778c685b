// Freezes the norms and adds a scale to the last unit's input. HEDDLE_FAULT selects a fault; each fault
// violates one sentence of heddle/plugin/transform.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>

#include <memory>
#include <random>
#include <stdexcept>

#include "fault.h"
#include "heddle/nn/token_loss.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"

namespace {

using faults::is;

struct Config {
  int64_t unused = 0;
};

heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>().field("unused", &Config::unused, "Does nothing.");
}

// One scale per channel. The gradient of one scalar before a norm would consist of rounding errors only.
class Scale : public heddle::Module {
 public:
  Scale(int64_t width, const at::TensorOptions& options) : weight(at::ones({width}, options)) {
    if (is("draws_values") && !weight.is_meta()) weight.fill_(static_cast<int64_t>(std::random_device()()));
    if (is("draws_a_factor")) factor_ = at::rand({width}, at::kFloat) + 0.5;
    weight.set_requires_grad(true);
    add_slot("weight", weight, {heddle::Init::Kind::ones});
  }
  std::string_view kind() const override { return "scale"; }
  heddle::ModuleTraits traits() const override {
    return {.tokens = heddle::TokenUse::each_alone, .role = heddle::Role::norm};
  }
  at::Tensor weight;
  at::Tensor* frozen = nullptr;  // a frozen parameter of this unit

 protected:
  at::Tensor forward(at::Tensor x, const heddle::Batch&) override {
    if (is("seam_throws")) throw std::runtime_error("no table of scales");
    if (is("reads_on_the_host") && *weight.const_data_ptr<float>() == 0) return x;
    if (is("draws_a_factor") && !x.is_meta()) return x * weight * factor_.to(x.options());
    if (is("counts_evaluations") && !at::GradMode::is_enabled()) ++calls_;
    if (is("counts_evaluations")) return x * weight + 0.01 * static_cast<double>(calls_);
    if (is("mixes_tokens")) return x * weight + x.mean(0, true);
    if (is("changes_what_it_froze") && frozen != nullptr && !frozen->is_meta() && at::GradMode::is_enabled())
      frozen->variable_data().mul_(1.01);
    if (is("draws_at_random")) return x * weight + at::rand_like(x);
    return is("forgets_its_weight") ? x : x * weight;
  }

 private:
  at::Tensor factor_;
  int64_t calls_ = 0;
};

class Faulty : public heddle::ITransform {
 public:
  explicit Faulty(Config) {}

  heddle::Transformed apply(heddle::Units& units, const heddle::TransformRun&) const override {
    if (is("throws")) throw std::runtime_error("no plan");
    heddle::Transformed out;
    out.exports_added = true;
    const bool second = calls_++ % 2 == 1;
    const at::Tensor* first = units.front()->parameters().front().tensor;
    for (const auto& unit : units)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (slot.name.find("norm") == slot.name.npos) continue;
        if (is("other_each_time") && second) continue;
        slot.tensor->set_requires_grad(false);
        if (!is("freezes_in_silence")) out.frozen.push_back(slot.name);
        if (is("changes_values") && !slot.tensor->is_meta()) slot.tensor->fill_(3);
      }
    if (is("draws_first_values"))
      out.values = [](const heddle::ParameterSource&) {
        return [](const heddle::Shard& shard) {
          shard.tensor.copy_(at::rand_like(shard.tensor));
          return true;
        };
      };
    if (is("derives_from_nothing")) out.derived["faulty_scale.weight"].from = "no.weight";
    if (is("sets_config_keys"))
      out.config = {{"faulty_scales", heddle::Node::integer(3)},
                    {"max_position_embeddings", heddle::Node::integer(77)}};
    if (is("says_more")) out.frozen.push_back(units.front()->parameters().front().name);
    if (is("changes_a_dtype"))
      *units.front()->parameters().front().tensor = first->detach().to(at::kDouble).requires_grad_(true);
    if (!(is("skips_meta") && first->is_meta())) add(units);
    if (std::getenv("HEDDLE_FAULT") != nullptr &&
        std::string(std::getenv("HEDDLE_FAULT")).starts_with("loss_"))
      replace_loss(units);
    if (!is("adds_in_silence") && !(is("skips_meta") && first->is_meta()))
      out.added.emplace_back("faulty_scale.weight");
    return out;
  }

 private:
  static void replace_loss(heddle::Units& units) {
    heddle::model::loss_head_of(units).loss->instead.add(heddle::TokenLoss::Instead::in_place(
        "faulty_transform", [](const at::Tensor& hidden, heddle::Linear& head, const heddle::Batch& batch) {
          const at::Tensor logits = head.call(hidden, batch), labels = batch.labels.flatten();
          const at::Tensor counts = labels.ne(heddle::Batch::kIgnore),
                           chosen = labels.clamp_min(0).unsqueeze(1);
          at::Tensor loss = is("loss_overflows")
                                ? logits.exp().sum(1).log() - logits.gather(1, chosen).squeeze(1)
                                : logits.logsumexp(1) - logits.gather(1, chosen).squeeze(1);
          if (!is("loss_counts_ignored")) loss = loss.masked_fill(counts.logical_not(), 0);
          loss = loss.sum().view({1});
          return is("loss_is_a_mean") ? loss / counts.sum() : loss;
        }));
  }
  static void add(heddle::Units& units) {
    heddle::Module& head = *units.back()->module();
    const at::Tensor& embedding = *units.front()->parameters().front().tensor;
    auto scale = std::make_shared<Scale>(embedding.size(-1), embedding.options());
    for (heddle::ParameterSlot& slot : units.back()->parameters())
      if (slot.name.find("norm") != slot.name.npos) scale->frozen = slot.tensor;
    heddle::transform::add_child(head, "faulty_scale", *scale);
    head.input.add([scale](at::Tensor x, const heddle::Batch& batch) { return scale->call(x, batch); });
  }
  mutable int calls_ = 0;
};

}  // namespace

HEDDLE_PLUGIN("faulty_transform", "0.1.0", "transform faulty") {
  plugin.transform<Faulty>("faulty", schema());
}
