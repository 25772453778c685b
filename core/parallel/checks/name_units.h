// Adds the plugin's file to exceptions of its model's units and of their backward nodes.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/stages.h"

namespace heddle::parallel {

// Wraps the units whose code, or whose module's, is in the file of a plugin. Errors of heddle with a place of
// their own pass, and so does the end of memory.
void name_units(Units& units);

// Called in a catch clause around a backward from these roots. Throws Error{plugin_failed} that names the
// plugins whose nodes were in the graph and the strategy, whose hooks were; returns for errors that have a
// place of their own, and where no plugin was part of it.
HEDDLE_API void blame_backward(const Stages& stages, const std::vector<torch::autograd::Edge>& roots);

}  // namespace heddle::parallel
