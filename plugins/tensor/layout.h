// Layout of a model under a plan: how every module is split, checked as a whole.
#pragma once

#include <optional>
#include <vector>

#include "heddle/sdk.h"
#include "sites.h"

namespace heddle::tensor {

// Layout of hidden states inside a block.
enum class Inside { split, whole };

// Module whose linear layers share one input and one output, such as attention or an MLP. A lone linear layer
// is a block too.
struct Block {
  size_t site;
  std::vector<size_t> linears;  // indices of sites
  std::vector<size_t> norms;
  Inside inside = Inside::whole;
};

// A head: a linear layer with the loss.
struct HeadOf {
  size_t linear, loss;
};

// Two child linear layers of a linear layer: the first has the layer's input, and the second's output is
// added to the layer's output. Their split follows from the layer. Or only the second layer, whose input is
// the output of the first child of a sibling layer.
struct LowRank {
  size_t layer;
  std::optional<size_t> first;
  size_t second;
};

struct Layout {
  Sites sites;
  std::vector<Block> blocks;
  std::vector<HeadOf> heads;
  std::vector<LowRank> low_ranks;
  std::vector<size_t> embeddings;
  std::vector<size_t> on_rows;   // outside blocks: norms, and other modules with parameters
  std::vector<size_t> gathered;  // on token rows: whole attention and mixtures, which gather all tokens
};

// Classifies the modules, and checks that styles are compatible and that `ranks` divides the heads. Throws
// Error{config | mesh}.
Layout lay_out(Sites sites, int ranks, bool sequence_parallel);

}  // namespace heddle::tensor
