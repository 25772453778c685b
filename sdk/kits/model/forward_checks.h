// Checks of a model's forward and gradients against unit.h, slot.h and batch.h. Each check throws a fault or
// returns its observation.
#pragma once

#include <string>

#include "built_model.h"

namespace heddle::kits {

// Checks that the model returns {sum of token losses} with labels and {logits} without, and that ignored
// labels and other rows do not affect the loss.
std::string gives_the_sum_of_losses(const ModelSite& site);
// Checks that a batch gives the same result again after other batches and without gradients, and is not
// modified.
std::string keeps_nothing(const ModelSite& site);
// Checks that tokens of Batch::padding do not affect losses, metrics and auxiliary losses.
std::string leaves_padding_out(const ModelSite& site);
// Checks that documents in one row give the result of separate rows, and that positions count from the first
// token.
std::string separates_documents(const ModelSite& site);
// Checks that every tensor with a gradient is a slot of the unit that uses it, and that every slot is used.
std::string registers_parameters(const ModelSite& site);
// Checks gradients, including those of auxiliary losses, against finite differences in float64.
std::string has_right_gradients(const ModelSite& site);
// Checks the longest sequence of facts(), with the last token of the vocabulary.
std::string takes_its_longest_sequence(const ModelSite& site);

}  // namespace heddle::kits
