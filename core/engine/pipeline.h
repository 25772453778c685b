// The pipeline of a run: which schedule its words ask for.
#pragma once

#include <string>

#include "heddle/config/setup.h"
#include "heddle/parallel/plan.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// Makes the schedule that the block of `pp_size` names, or reads the table that it gives; without such a
// block nothing happens. Throws Error{config | input | plugin_*}.
void add_pipeline(Plan& plan, const Setup& setup, PluginRegistry& plugins);

// Lines of the fingerprint: the table's contents, which the words only name. "" where there is none.
std::string table_lines(const Plan& plan);

}  // namespace heddle::engine
