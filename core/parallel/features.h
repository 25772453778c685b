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

inline constexpr std::array<std::string_view, 2> kFeatures = {kSelectiveCheckpointing, kReductions};

}  // namespace heddle
