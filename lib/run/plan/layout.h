// A layout of a run over ranks: values of a recipe's keys that `heddle plan` compares.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

struct Layout {
  std::string strategy;
  int dp_replicate = 1, tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  std::string cp_method = {};          // method of context parallelism; empty: cp is 1
  std::string schedule = {};           // pipeline schedule
  int virtual_stages = 1;              // pipeline stages per rank
  int64_t rows = 1;                    // samples per microbatch
  std::string recomputation = "none";  // "none", "selective", "full"
  bool reshards = true;                // parameters are freed after the forward pass
  bool defers = true;                  // gradients are reduced once per step, not once per microbatch
  bool sequence_parallel = false;
  std::string precision =
      {};  // section of the recipe that sets the dtype of products; empty: the recipe's own
  std::vector<int64_t> stage_layers = {};  // [stage]: number of layers; empty: equal numbers

  bool operator==(const Layout&) const = default;
  // Returns "fsdp2, tp 8, pp 4 (interleaved1f1b, 2 stages per rank), microbatches of 1, recomputation full".
  std::string text() const;
  // Returns pairs such as "tp_size" and its value, as --fix takes them.
  std::vector<std::pair<std::string, std::string>> fields() const;
};

// Values that all layouts of a search share.
struct LayoutSpace {
  Node recipe;
  int world = 1;
  int64_t node_devices = 8;
  // Number of ranks that must be a multiple of the ranks of a stage, so that all ranks of a stage are on the
  // same kind of machine. 0: there is only one kind.
  int64_t ranks_of_kind = 0;
  std::vector<std::string> units;  // names of the model's units
  std::string strategy;            // strategy of the recipe; its mesh and fields allow:
  bool has_tp = true, has_cp = true, has_pp = true;
  bool has_replicas = false, has_reshard = false, has_deferral = false, has_sequence_parallel = false;
  int64_t layers = 0, heads = 0, key_value_heads = 0, experts = 0, expert_width = 0;
  int64_t row_length = 0, global_batch = 0;
  std::vector<std::pair<std::string, std::string>> fixed;  // as in Layout::fields()
  std::set<std::string> precisions;                        // values of Layout::precision besides ""
};

// Returns every layout that divides the world, the batch and the layers and keeps the fixed values. Throws
// Error{usage} for a fixed key that is not a key of layouts.
std::vector<Layout> all_layouts(const LayoutSpace& space);

// Whether a unit is one of the model's numbered layers, such as "model.layers.3".
bool is_layer(const std::string& unit);

// Returns the number of layers of each stage, as equal as possible.
std::vector<int64_t> even_layers(int64_t layers, int64_t stages);

// Returns the recipe with a section that sets the dtype of products, such as fp8.
Node with_precision(const Node& recipe, const std::string& section);

// Returns the recipe with this layout.
Node with_layout(const LayoutSpace& space, const Layout& layout);

}  // namespace heddle
