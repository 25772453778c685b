// A plan applied to a model: how every module is split, checked as a whole.
#pragma once

#include <optional>
#include <vector>

#include "heddle/sdk.h"
#include "sites.h"

namespace heddle::tensor {

// The layout of hidden states inside a block.
enum class Inside { split, whole };

// Modules with linear layers of one input and one output: attention, an MLP; a lone linear layer is one.
struct Block {
  size_t site;
  std::vector<size_t> linears;  // sites
  std::vector<size_t> norms;
  Inside inside = Inside::whole;
};

// A head is a linear layer with the loss.
struct HeadOf {
  size_t linear, loss;
};

// Two linear layers below a linear layer: the first gets its input, the second's output is added to its
// output. How they are split follows from the layer. Or the second alone, whose input is what the first of a
// layer beside it computes.
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
  std::vector<size_t> on_rows;   // outside blocks: norms, and others with parameters of their own
  std::vector<size_t> gathered;  // on token rows: whole attention and mixtures, which get all tokens
};

// Sorts the modules and checks that styles are compatible, and that `ranks` divide the heads.
// Throws Error{config | mesh}.
Layout lay_out(Sites sites, int ranks, bool sequence_parallel);

}  // namespace heddle::tensor
