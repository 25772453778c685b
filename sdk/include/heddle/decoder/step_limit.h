// The key time_step_limit of models with Mamba-2.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/decoder/family.h"

namespace heddle::decoder {

// The range to which steps are cut; without the key the values stay. Throws Error{config} at it.
HEDDLE_API void read_step_limit(const Node& keys, double& shortest, double& longest);
HEDDLE_API std::vector<Node::Entry> step_limit_entry(double shortest, double longest);
HEDDLE_API FieldInfo step_limit_info();

// For keys with the members shortest_step and longest_step.
template <class Keys>
model::KeyGroup<Keys> step_limit() {
  model::KeyGroup<Keys> out;
  out.table = {step_limit_info()};
  out.read = [](const Node& given, Keys& keys) {
    read_step_limit(given, keys.shortest_step, keys.longest_step);
  };
  out.write = [](const Keys& of) { return step_limit_entry(of.shortest_step, of.longest_step); };
  return out;
}

}  // namespace heddle::decoder
