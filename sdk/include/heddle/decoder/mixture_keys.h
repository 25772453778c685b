// The keys of a mixture of experts, declared once for all families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/base/export.h"
#include "heddle/decoder/family.h"

namespace heddle::decoder {

// The values of these keys. A family derives its struct from it and from CommonKeys, and sets its own
// defaults in the constructor.
struct HEDDLE_API MixtureKeys {
  int64_t experts = 1, experts_of_token = 1, expert_width = 1;
  int64_t groups = 1, top_groups = 1;  // the experts of a token are in its best top_groups groups
  double routed_scale = 1;             // factor of the routing weights of the selected experts
  bool normalised = true;  // normalize the weights of the selected experts to sum 1 before scaling
  bool output_router_logits = false, fake_balanced_gate = false;
  double router_aux_loss_coef = 0.001, router_z_loss_coef = 0, gate_bias_update_factor = 0;
  std::optional<std::string> router_aux_loss_type, router_dtype;

  // Returns experts with a softmax router and no shared expert. The auxiliary loss is router_aux_loss_type;
  // without the key, Form::model if output_router_logits is set, else none.
  Mixture mixture() const;
  // Returns experts with a sigmoid router and a correction bias for the selection (DeepSeek-V3). The score of
  // a group is the sum of its best two.
  Mixture corrected_mixture() const;
};

// Names of the mixture keys in a family. null: the family does not have the key.
struct MixtureForm {
  const char* experts = "num_experts";
  const char* experts_of_token = "num_experts_per_tok";
  const char* width = "moe_intermediate_size";
  const char* groups = nullptr;      // n_group; the family then also has topk_group
  const char* scale = nullptr;       // routed_scaling_factor
  const char* normalised = nullptr;  // norm_topk_prob
  int64_t fewest = 1;                // minimum number of experts; 0: layers may have none
  bool losses = true;   // whether the family has the keys of the auxiliary loss, the z-loss and router_dtype
  bool logits = false;  // whether output_router_logits enables transformers' auxiliary loss
  bool correction = false;  // whether gate_bias_update_factor updates the correction bias
  bool in_fp32 = false;     // whether the router's product is in fp32 whatever router_dtype says
};

// Declares the keys of the router's losses. Called by add_mixture().
template <class Keys>
void add_router_losses(model::ModelKeys<Keys>& keys, const MixtureForm& form) {
  using Own = MixtureKeys;
  if (form.logits)
    keys.field("output_router_logits", &Own::output_router_logits, "Train with the auxiliary loss.");
  keys.field("router_aux_loss_type", &Own::router_aux_loss_type,
             form.logits
                 ? "Form of the auxiliary loss. null: model if output_router_logits is set, else no loss."
                 : "Form of the auxiliary loss. null: no loss.",
             balance_words())
      .field("router_aux_loss_coef", &Own::router_aux_loss_coef,
             "Coefficient of the auxiliary loss. Ignored without that loss.", at_least(0.0))
      .field("router_z_loss_coef", &Own::router_z_loss_coef, "Coefficient of the router's z-loss.",
             at_least(0.0))
      .field("router_dtype", &Own::router_dtype,
             form.in_fp32 ? "Ignored: the router's projection is in fp32."
                          : "Dtype of the router's projection. null: the model's dtype.",
             OneOf{{"float32", "fp32"}});
}

// Declares the keys of the router and the experts. A family adds a rule for combinations that are invalid.
template <class Keys>
void add_mixture(model::ModelKeys<Keys>& keys, const MixtureForm& form = {}) {
  using Own = MixtureKeys;
  const auto add = [&](const char* key, auto slot, const char* help, auto range) {
    if (key != nullptr) keys.field(key, slot, help, range);
  };
  add(form.experts, &Own::experts,
      form.fewest == 0 ? "Number of experts per layer. 0: no layer has experts."
                       : "Number of experts per layer.",
      Range<int64_t>{form.fewest, 65536});
  add(form.experts_of_token, &Own::experts_of_token, "Number of experts per token.", kSize);
  add(form.width, &Own::expert_width, "Width of an expert.", kSize);
  add(form.groups, &Own::groups, "Number of expert groups.", kSize);
  if (form.groups != nullptr)
    keys.field("topk_group", &Own::top_groups,
               "Number of groups from which the experts of a token are selected.", kSize);
  add(form.scale, &Own::routed_scale, "Scale of the routing weights of the selected experts.", at_least(0.0));
  if (form.normalised != nullptr)
    keys.field(form.normalised, &Own::normalised,
               "Normalize the routing weights of the selected experts to sum 1 before scaling.");
  if (form.losses) add_router_losses(keys, form);
  keys.field("fake_balanced_gate", &Own::fake_balanced_gate,
             "Assign tokens to experts in turn, for benchmarks.");
  if (form.correction)
    keys.field(
        "gate_bias_update_factor", &Own::gate_bias_update_factor,
        "Amount by which the correction bias of each expert changes after a step to balance the load. No "
        "effect within a step.",
        at_least(0.0));
}

}  // namespace heddle::decoder
