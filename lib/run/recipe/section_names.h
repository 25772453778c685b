// Names of a configuration's sections, for recipes and for the command line.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle {

inline constexpr std::array<std::string_view, 21> kSections = {"recipe",
                                                               "seed",
                                                               "step_scheduler",
                                                               "model",
                                                               "dataset",
                                                               "validation_dataset",
                                                               "dataloader",
                                                               "optimizer",
                                                               "lr_scheduler",
                                                               "clip_grad_norm",
                                                               "loss_fn",
                                                               "distributed",
                                                               "dist_env",
                                                               "checkpoint",
                                                               "plugins",
                                                               "packed_sequence",
                                                               "validation_dataloader",
                                                               "validation_samples",
                                                               "benchmark",
                                                               "mfu",
                                                               "plan"};
inline constexpr std::string_view kNamedValidation = "validation_dataset_";  // followed by a name

// Other sections of AutoModel's recipes, with the hint if no plugin offers them. A null section counts as
// missing.
struct OtherSection {
  std::string_view name, hint;
};
inline constexpr std::string_view kNoPlugin = "no plugin offers this section; name its plugin under plugins";
inline constexpr std::string_view kOfTeacher = "it belongs to the section teacher_model, which is not given";
inline constexpr std::array<OtherSection, 12> kOtherSections = {{
    {"wandb", kNoPlugin},
    {"mlflow", kNoPlugin},
    {"comet", "remove it; metrics go to training.jsonl"},
    {"freeze_config", kNoPlugin},
    {"embedding_row_repair", kNoPlugin},
    {"neftune", kNoPlugin},
    {"teacher_model", kNoPlugin},
    {"kd_ratio", kOfTeacher},
    {"kd_loss_fn", kOfTeacher},
    {"separate_meshes", kOfTeacher},
    {"offload_teacher_model", kOfTeacher},
    {"teacher_distributed", kOfTeacher},
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
