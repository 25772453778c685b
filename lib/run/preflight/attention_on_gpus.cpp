// Modules of attention that GPUs refuse.
#include "lib/run/preflight/attention_on_gpus.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/model/module.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/attention_layout.h"

namespace heddle {

std::string not_on_gpus(const Units& units) {
  std::string out;
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string&, Module& module) {
      const auto* core = dynamic_cast<const AttentionCore*>(&module);
      if (core != nullptr && out.empty()) out = model::gpu_refusal(core->head_dim(), core->options());
    });
  }
  return out;
}

bool computes_in_float32(const Node& strategy, at::ScalarType storage) {
  const auto given = [&](const Node* within, const char* key) {
    const Node* value = within == nullptr || !within->is_map() ? nullptr : within->find(key);
    return value == nullptr || value->is_null() ? std::string() : value->as_text();
  };
  const std::string autocast = given(&strategy, "autocast_dtype"),
                    policy = given(strategy.find("mp_policy"), "param_dtype");
  const std::string word = autocast.empty() ? policy : autocast;
  return word.empty() ? storage == at::kFloat : word == "float32";
}

void refuse_windows(const Units& units, const Recipe& recipe, int64_t max_positions) {
  if (!recipe.dataset) return;
  const auto length_of = [&](const DatasetSection& section) {
    return section.sequence_length > 0 ? section.sequence_length : max_positions;
  };
  int64_t longest = length_of(*recipe.dataset);
  for (const DatasetSection& section : recipe.validation) longest = std::max(longest, length_of(section));
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string&, Module& module) {
      const auto* core = dynamic_cast<const AttentionCore*>(&module);
      if (core == nullptr || core->options().window == 0 || core->options().window >= longest) return;
      const std::string window = std::to_string(core->options().window);
      throw Error(ErrorCode::not_built, "model",
                  "attention with a sliding window (" + window + " tokens, in rows of " +
                      std::to_string(longest) + ") is built for the CPU only",
                  "set dist_env.backend: gloo, or a seq_len of at most " + window +
                      ", or use a model without windows");
    });
  }
}

}  // namespace heddle
