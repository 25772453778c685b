// The keys of a mixture of experts, declared once for all families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/base/export.h"
#include "heddle/decoder/family.h"

namespace heddle::decoder {

// A family derives its keys from it beside CommonKeys, and sets its own defaults in the constructor.
struct HEDDLE_API MixtureKeys {
  int64_t experts = 1, experts_of_token = 1, expert_width = 1;
  int64_t groups = 1, top_groups = 1;  // a token's experts are in the best top_groups groups
  double routed_scale = 1;             // of the weights of a token's experts
  bool normalised = true;              // these weights sum to 1, before they are scaled
  bool output_router_logits = false, fake_balanced_gate = false;
  double router_aux_loss_coef = 0.001, router_z_loss_coef = 0, gate_bias_update_factor = 0;
  std::optional<std::string> router_aux_loss_type, router_dtype;

  // The experts behind a router of softmax scores, without a shared expert. The auxiliary loss is that of
  // router_aux_loss_type; without the key `model` where output_router_logits, else none.
  Mixture mixture() const;
  // The same behind a router of sigmoid scores with a bias that chooses experts (DeepSeek-V3); a group is
  // worth its best two.
  Mixture corrected_mixture() const;
};

// How a family names its keys of a mixture; null: it has no such key.
struct MixtureForm {
  const char* experts = "num_experts";
  const char* experts_of_token = "num_experts_per_tok";
  const char* width = "moe_intermediate_size";
  const char* groups = nullptr;      // n_group; the family has topk_group too
  const char* scale = nullptr;       // routed_scaling_factor
  const char* normalised = nullptr;  // norm_topk_prob
  int64_t fewest = 1;                // experts; 0: layers may have none
  bool losses = true;                // the auxiliary loss, the z-loss and router_dtype
  bool logits = false;               // output_router_logits asks for transformers' auxiliary loss
  bool correction = false;           // gate_bias_update_factor moves the bias that chooses experts
  bool in_fp32 = false;              // the router's product is in fp32 whatever router_dtype says
};

template <class Keys>
void add_router_losses(model::ModelKeys<Keys>& keys, const MixtureForm& form) {
  using Own = MixtureKeys;
  if (form.logits)
    keys.field("output_router_logits", &Own::output_router_logits, "Train with the auxiliary loss.");
  keys.field("router_aux_loss_type", &Own::router_aux_loss_type,
             form.logits ? "Its form; null: model where output_router_logits, else none."
                         : "Auxiliary loss; null: none.",
             balance_words())
      .field("router_aux_loss_coef", &Own::router_aux_loss_coef,
             "Its coefficient; without that loss it changes nothing.", at_least(0.0))
      .field("router_z_loss_coef", &Own::router_z_loss_coef, "Coefficient of the router's z-loss.",
             at_least(0.0))
      .field("router_dtype", &Own::router_dtype,
             form.in_fp32 ? "It changes nothing: the router's product is in fp32."
                          : "Dtype of the router's product; null: the model's.",
             OneOf{{"float32", "fp32"}});
}

// The keys of the router and of the experts. What their numbers exclude together is a rule of the family.
template <class Keys>
void add_mixture(model::ModelKeys<Keys>& keys, const MixtureForm& form = {}) {
  using Own = MixtureKeys;
  const auto add = [&](const char* key, auto slot, const char* help, auto range) {
    if (key != nullptr) keys.field(key, slot, help, range);
  };
  add(form.experts, &Own::experts,
      form.fewest == 0 ? "Experts of a layer; 0: no layer has experts." : "Experts of a layer.",
      Range<int64_t>{form.fewest, 65536});
  add(form.experts_of_token, &Own::experts_of_token, "Experts of a token.", kSize);
  add(form.width, &Own::expert_width, "Width of an expert.", kSize);
  add(form.groups, &Own::groups, "Groups of experts.", kSize);
  if (form.groups != nullptr)
    keys.field("topk_group", &Own::top_groups, "A token's experts are in so many of the groups.", kSize);
  add(form.scale, &Own::routed_scale, "Of the weights of a token's experts.", at_least(0.0));
  if (form.normalised != nullptr)
    keys.field(form.normalised, &Own::normalised,
               "The weights of a token's experts sum to 1, before they are scaled.");
  if (form.losses) add_router_losses(keys, form);
  keys.field("fake_balanced_gate", &Own::fake_balanced_gate, "For benchmarks: experts in turn.");
  if (form.correction)
    keys.field("gate_bias_update_factor", &Own::gate_bias_update_factor,
               "After each step the bias that chooses experts moves by so much towards even loads; in the "
               "step itself it changes nothing.",
               at_least(0.0));
}

}  // namespace heddle::decoder
