// One way to lay a run out over ranks: values of a recipe's keys, which `heddle plan` compares.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

struct Layout {
  std::string strategy;
  int dp_replicate = 1, tp = 1, cp = 1, pp = 1, ep = 1;
  std::string schedule = {};           // of a pipeline
  int virtual_stages = 1;              // stages of a rank of the pipeline
  int64_t rows = 1;                    // samples of a microbatch
  std::string recomputation = "none";  // "none", "selective", "full"
  bool reshards = true;                // parameters are freed after the forward
  bool sequence_parallel = false;
  std::vector<int64_t> stage_layers = {};  // of each stage, where they differ

  bool operator==(const Layout&) const = default;
  // "fsdp2, tp 8, pp 4 (interleaved1f1b, 2 stages a rank), microbatches of 1, recomputation full"
  std::string text() const;
  // "tp_size" and its value, as --fix takes them.
  std::vector<std::pair<std::string, std::string>> fields() const;
};

// What the layouts of a search have in common.
struct LayoutSpace {
  Node recipe;
  int world = 1;
  int64_t node_devices = 8;
  // Divides the ranks of a pipeline's stage, so that each is on machines of one kind; 0: all are of one.
  int64_t ranks_of_kind = 0;
  std::vector<std::string> units;  // names of the model's units
  std::string strategy;            // of the recipe; what its mesh and its fields allow:
  bool has_replicas = false, has_reshard = false, has_sequence_parallel = false;
  int64_t layers = 0, heads = 0, key_value_heads = 0, experts = 0;
  int64_t row_length = 0, global_batch = 0;
  std::vector<std::pair<std::string, std::string>> fixed;  // as in Layout::fields()
};

// Every layout that divides the world, the batch and the layers, and keeps what is fixed. Throws Error{usage}
// for a fixed key that no layout has.
std::vector<Layout> all_layouts(const LayoutSpace& space);

// The layers of each of `stages` stages, as many as the rest lets be equal.
std::vector<int64_t> even_layers(int64_t layers, int64_t stages);

// The recipe with this layout.
Node with_layout(const LayoutSpace& space, const Layout& layout);

}  // namespace heddle
