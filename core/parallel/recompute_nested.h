// Activation checkpointing of a unit with foreign autograd nodes: a backward inside the backward.
#pragma once

#include "heddle/model/unit.h"

namespace heddle::parallel {

// One forward of the unit (Chen et al. 2016; the reentrant form): it runs without a graph and keeps its
// inputs and its batch. The backward runs it again with gradients on, and a backward of that inside. Called
// with gradients on; the unit outlives the graph.
Tensors forward_nested(Unit& unit, Tensors inputs, const Batch& batch);

}  // namespace heddle::parallel
