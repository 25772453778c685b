// Small sets of combinations in which every two values of two settings occur together.
#pragma once

#include <functional>
#include <vector>

namespace heddle::tests {

// One value per setting. kOpen: not set yet.
using Choice = std::vector<int>;
constexpr int kOpen = -1;

// Returns a covering array of strength two (the greedy method of Cohen et al. 1997), equal in every call.
// counts: number of values of each setting. legal: whether a choice can be completed; also called with open
// settings. Pairs that no legal choice contains are skipped.
std::vector<Choice> pairwise(const std::vector<int>& counts, const std::function<bool(const Choice&)>& legal);

}  // namespace heddle::tests
