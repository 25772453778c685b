// What unit.h, slot.h and batch.h say of a model's forward, and its gradients; each check throws what it
// finds and returns its observation.
#pragma once

#include <string>

#include "built_model.h"

namespace heddle::kits {

// {sum of token losses} with labels, {logits} without; ignored labels and other rows change nothing.
std::string gives_the_sum_of_losses(const ModelSite& site);
// The same numbers again, after other batches and without gradients; the batch stays as it is.
std::string keeps_nothing(const ModelSite& site);
// Tokens of Batch::padding change no loss, metric or auxiliary loss.
std::string leaves_padding_out(const ModelSite& site);
// Documents in one row are what they are in rows of their own; positions count from the first token.
std::string separates_documents(const ModelSite& site);
// Every tensor that gets a gradient is a slot of the unit that computes with it, and every slot is used.
std::string registers_parameters(const ModelSite& site);
// Gradients are finite differences in float64, those of auxiliary losses too.
std::string has_right_gradients(const ModelSite& site);
// As long as facts() says, and with the last token of the vocabulary.
std::string takes_its_longest_sequence(const ModelSite& site);

}  // namespace heddle::kits
