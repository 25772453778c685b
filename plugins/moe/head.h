// Settings of the head: its precision, and its tie to the embedding.
#pragma once

#include "config.h"
#include "heddle/model/unit.h"

namespace heddle::moe {

// Checks the whole model. Throws Error{config} for settings that are impossible with a tied head.
void check_head(const Units& units, const Block& block);

// Pins the head's weight to float32 and casts its input, if lm_head_precision is set. Does nothing if the
// head is on another pipeline stage.
void set_head_precision(const Units& units, const Block& block);

}  // namespace heddle::moe
