// The names of a configuration's sections: for the reader of recipes and for the command line.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle {

inline constexpr std::array<std::string_view, 17> kSections = {
    "recipe",     "seed",       "step_scheduler", "model",          "dataset",        "validation_dataset",
    "dataloader", "optimizer",  "lr_scheduler",   "clip_grad_norm", "loss_fn",        "distributed",
    "dist_env",   "checkpoint", "plugins",        "freeze_config",  "packed_sequence"};
inline constexpr std::string_view kNamedValidation = "validation_dataset_";  // and a NAME

constexpr bool is_section(std::string_view key) {
  return std::find(kSections.begin(), kSections.end(), key) != kSections.end() ||
         (key.starts_with(kNamedValidation) && key.size() > kNamedValidation.size());
}

}  // namespace heddle
