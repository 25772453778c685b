// The pipeline of a run: the schedule that its fields ask for.
#pragma once

#include <string>

#include "heddle/config/setup.h"
#include "heddle/parallel/plan.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// Makes the schedule named by the block of `pp_size`, or reads its table; does nothing without that block.
// Throws Error{config | input | plugin_*}.
void add_pipeline(Plan& plan, const Setup& setup, PluginRegistry& plugins);

// Lines of the fingerprint: the contents of the table's file. "" without a table.
std::string table_lines(const Plan& plan);

}  // namespace heddle::engine
