// Computation of split layers.
#pragma once

#include <memory>
#include <optional>

#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "heddle/sdk.h"
#include "parts.h"

namespace heddle::tensor {

// The ranks, and the layout of hidden states between split layers.
struct Border {
  DeviceMesh mesh;          // keeps the group alive
  Communicator* ranks;      // of tp
  bool sequence = false;    // hidden states are this rank's token rows; false: whole on every rank
  bool overlapped = false;  // communication of a part overlaps the products of other parts
};

using Product = Linear::Instead::LinkPointer;

// Product from hidden states to this rank's columns, with one gather for all layers that share the input.
Product inward(const Border& border);
// inward() for hidden states that are always whole.
Product inward_of_whole(const Border& border);
// Product from this rank's columns to hidden states: the product, the sum over ranks, then the bias.
Product outward(const Border& border);
// outward() from whole inputs of `width` columns to whole outputs.
Product outward_of_whole(const Border& border);

// Sums the partial outputs of a split embedding to hidden states.
Seam::Transform embedded(const Border& border);
// Loss over a head that holds `part` of `whole` rows, with the soft cap of the model's loss.
TokenLoss::Instead::LinkPointer split_loss(const Border& border, const Part& part, int64_t whole,
                                           double soft_cap);

// Split of the head, for links that compute the loss themselves.
TokenLoss::Split split_of(const Border& border, const Part& part, int64_t whole);

// Loss for a head that computes more than the product with its weight, from its logits of `part`.
TokenLoss::Instead::LinkPointer split_loss_of_logits(const Border& border, const Part& part, int64_t whole,
                                                     double soft_cap);

// Seams around a block that every rank computes whole, between token rows.
Seam::Transform whole_rows(const Border& border);
Seam::Transform own_rows_of_whole(const Border& border);
// Gathers this rank's columns of `whole`.
Seam::Transform whole_columns(const Border& border, int64_t whole);

}  // namespace heddle::tensor
