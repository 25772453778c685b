// The features of core that a plugin may say it works with: every word that Needs::may_use may hold.
#pragma once

#include <array>
#include <string_view>

namespace heddle {

// `activation_checkpointing: selective` (heddle/parallel/recompute.h).
inline constexpr std::string_view kSelectiveCheckpointing = "selective_activation_checkpointing";

inline constexpr std::array<std::string_view, 1> kFeatures = {kSelectiveCheckpointing};

}  // namespace heddle
