// The key time_step_limit: two numbers, of which the second may be infinite.
#include "heddle/decoder/family.h"

#include <algorithm>
#include <limits>

namespace heddle::decoder {

void read_step_limit(const Node& keys, double& shortest, double& longest) {
  const Node* limit = model::given(keys, "time_step_limit");
  if (limit == nullptr) return;
  const bool is_pair = limit->is_list() && limit->items().size() == 2;
  if (is_pair) shortest = limit->items()[0].as_real(), longest = limit->items()[1].as_real();
  if (!is_pair || !(shortest >= 0 && shortest <= longest))
    model::refuse(*limit,
                  is_pair ? "time_step_limit: expected the shortest step, at least 0, and the longest step, "
                            "not below it, got " +
                                limit->items()[0].written() + " and " + limit->items()[1].written()
                          : "time_step_limit: expected a list of two numbers, the shortest and the longest "
                            "step, got " +
                                limit->written());
}

std::vector<Node::Entry> step_limit_entry(double shortest, double longest) {
  const double most = std::numeric_limits<float>::max();  // JSON has no infinity
  return {{"time_step_limit", Node::list({Node::real(shortest), Node::real(std::min(longest, most))})}};
}

FieldInfo step_limit_info() {
  return {"time_step_limit",
          "list of 2 numbers",
          "[0.0, .inf]",
          "at least 0",
          "Range to which the steps of Mamba-2 are clamped.",
          ""};
}

}  // namespace heddle::decoder
