// Activation checkpointing of whole units: between forward and backward only a unit's inputs are kept.
#pragma once

#include <memory>

#include "heddle/base/export.h"
#include "heddle/model/unit.h"

namespace heddle::parallel {

// The unit, wrapped (Chen et al. 2016; the reentrant form): its forward runs without a graph and keeps its
// inputs and its batch; its backward runs the forward again with gradients on, and a backward inside the
// backward. Gradients have the bits of the plain unit. Random numbers and autocast are as they were in the
// forward, if it drew any. Without gradients (evaluation) nothing is kept and nothing is done. A unit without
// trainable parameters is given back as it is. No second derivatives.
//
// What strategies meet: hooks on the unit's outputs run before it is computed again, hooks on its leaves
// inside the nested backward, once for each unit that uses the leaf. A callback of the engine that is queued
// there is called at the end of the nested backward, not of the whole one.
HEDDLE_API std::unique_ptr<Unit> recomputed(std::unique_ptr<Unit> unit);

// Wraps every unit but the model's first and last one: looking tokens up keeps next to nothing, and the
// backward of the loss comes next. They need not be among the units.
HEDDLE_API void recompute(Units& units, const Unit* first, const Unit* last);

}  // namespace heddle::parallel
