// Activation checkpointing of whole units: between forward and backward only inputs, or a few results
// besides, are kept.
#pragma once

#include <memory>

#include "heddle/base/export.h"
#include "heddle/config/setup.h"
#include "heddle/model/unit.h"

namespace heddle::parallel {

// The unit, wrapped. Its forward keeps its inputs, its batch and the graph; the first node of its backward
// that needs a value makes it run again, up to the last needed value (model::Region). There is no backward
// inside the backward: hooks fire as without checkpointing. Gradients have the bits of the plain unit. Random
// numbers and autocast are as they were in the forward. Without gradients (evaluation) it does nothing. A
// unit without trainable parameters is returned as it is. No second derivatives.
//
// Under `selective` results of the costly operators are kept as well, and not computed again: of attention
// and of collectives that scatter sums always, of the products of linear layers every other one, beginning
// with the first (the policy of torchtitan and NeMo AutoModel).
//
// A foreign unit (module() == nullptr), or one whose nodes are not the layers' own, has the reentrant form
// under `full` (Chen et al. 2016): a backward inside the backward. Then hooks on the unit's outputs run
// before it is computed again, hooks on its leaves inside the nested backward, once for each unit that uses
// the leaf; a callback of the engine queued there is called at the end of the nested backward. Under
// `selective` a foreign unit throws Error{config}.
HEDDLE_API std::unique_ptr<Unit> recomputed(std::unique_ptr<Unit> unit, ActivationCheckpointing mode);

// Wraps every unit but the model's first and last one: the embedding keeps almost nothing, and the backward
// of the loss comes next. The two need not be among the units.
HEDDLE_API void recompute(Units& units, const Unit* first, const Unit* last, ActivationCheckpointing mode);

// Throws what recompute() would throw, for a whole model.
HEDDLE_API void check_recompute(const Units& units, ActivationCheckpointing mode);

// One forward of a unit with foreign autograd nodes (Chen et al. 2016; the reentrant form): it runs without a
// graph and keeps its inputs and its batch. The backward runs it again with gradients on, and a backward of
// that inside. Called with gradients on; the unit outlives the graph.
Tensors forward_nested(Unit& unit, Tensors inputs, const Batch& batch);

}  // namespace heddle::parallel
