// Few combinations of many settings, in which every two values of two settings meet.
#pragma once

#include <functional>
#include <vector>

namespace heddle::tests {

// One value of each setting; kOpen: not chosen yet.
using Choice = std::vector<int>;
constexpr int kOpen = -1;

// A covering array of strength two (the greedy way of Cohen et al. 1997), the same on every call. counts: how
// many values each setting has. legal: whether a choice can be completed; asked with open settings too. Pairs
// that no legal choice holds are left out.
std::vector<Choice> pairwise(const std::vector<int>& counts, const std::function<bool(const Choice&)>& legal);

}  // namespace heddle::tests
