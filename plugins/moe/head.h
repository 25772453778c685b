// The fields of the block that concern the head: its precision, and its tie to the embedding.
#pragma once

#include "config.h"
#include "heddle/model/unit.h"

namespace heddle::moe {

// Throws Error{config} for fields that a head tied to the embedding cannot have. Of the whole model.
void check_head(const Units& units, const Block& block);

// With lm_head_precision: pins the head's weight to float32 and casts what comes to it. Nothing where the
// head is on another rank of the pipeline.
void set_head_precision(const Units& units, const Block& block);

}  // namespace heddle::moe
