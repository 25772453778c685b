// The names of a configuration's sections: for the reader of recipes and for the command line.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle {

inline constexpr std::array<std::string_view, 18> kSections = {"recipe",          "seed",
                                                               "step_scheduler",  "model",
                                                               "dataset",         "validation_dataset",
                                                               "dataloader",      "optimizer",
                                                               "lr_scheduler",    "clip_grad_norm",
                                                               "loss_fn",         "distributed",
                                                               "dist_env",        "checkpoint",
                                                               "plugins",         "freeze_config",
                                                               "packed_sequence", "validation_dataloader"};
inline constexpr std::string_view kNamedValidation = "validation_dataset_";  // and a NAME

// Sections of AutoModel's recipes that mean something else here, or nothing, with what to do about them. Null
// is as good as left out.
struct OtherSection {
  std::string_view name, hint;
};
inline constexpr std::array<OtherSection, 3> kOtherSections = {{
    {"wandb", "leave it out: metrics go to training.jsonl"},
    {"mlflow", "leave it out: metrics go to training.jsonl"},
    {"comet", "leave it out: metrics go to training.jsonl"},
}};

constexpr bool is_other_section(std::string_view key) {
  return std::any_of(kOtherSections.begin(), kOtherSections.end(),
                     [&](const OtherSection& other) { return other.name == key; });
}

constexpr bool is_section(std::string_view key) {
  return std::find(kSections.begin(), kSections.end(), key) != kSections.end() ||
         (key.starts_with(kNamedValidation) && key.size() > kNamedValidation.size());
}

}  // namespace heddle
