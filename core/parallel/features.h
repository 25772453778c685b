// The features of core that a plugin may support: every value allowed in Needs::may_use.
#pragma once

#include <array>
#include <string_view>

namespace heddle {

// `activation_checkpointing: selective` (core/parallel/recompute.h).
inline constexpr std::string_view kSelectiveCheckpointing = "selective_activation_checkpointing";

// Axes in a view of their own: gradients are summed along the Reduction of each parameter
// (heddle/parallel/reduction.h), not all along one axis.
inline constexpr std::string_view kReductions = "reductions";

// Stages that can forget forwards (ParallelStage::can_restart), for updates that are validated later
// (PipelineConfig::post_validation).
inline constexpr std::string_view kPostValidation = "post_validation";

inline constexpr std::array<std::string_view, 3> kFeatures = {kSelectiveCheckpointing, kReductions,
                                                              kPostValidation};

}  // namespace heddle
