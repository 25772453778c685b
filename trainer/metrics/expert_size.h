// How many experts a model has, how many of them a rank holds, and what a token meets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle {

class Experts;

// A layer with experts, taken while the whole model is there. The module stays valid on the rank whose stage
// has it.
struct ExpertLayer {
  const Experts* module = nullptr;
  std::string parameter;  // one of its parameters, to find the layer in a stage
  int64_t experts = 0, top_k = 0;
  int64_t parameters = 0;  // of all its experts
};
using ExpertLayers = std::vector<ExpertLayer>;
ExpertLayers expert_layers_of(const Units& units);

struct ExpertSize {
  int64_t layers = 0, experts = 0;    // of the whole model; experts summed over layers
  int64_t inactive = 0;               // parameters of experts that a token does not meet, of all layers
  int64_t held_layers = 0, held = 0;  // in this rank's stages
};
ExpertSize size_of(const ExpertLayers& layers, const Stages& stages);

// "12 in 3 layers; a token meets 1.20 M of 2.40 M parameters; a rank computes 6 in 3"; empty without experts.
// `parameters`: of the whole model.
std::string experts_text(const ExpertSize& size, int64_t parameters);

}  // namespace heddle
