// The pipeline of a run: the schedule that its fields ask for.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/config/setup.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/plan.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// Makes the schedule named by the block of `pp_size`, or reads its table; does nothing without that block.
// Throws Error{config | input | plugin_*}.
void add_pipeline(Plan& plan, const Setup& setup, PluginRegistry& plugins);

// A schedule that searches its tables searches on rank 0 from now on, and all ranks get what it finds. A
// rendezvous of all ranks when `batch_rows`, the rows of one batch, are known (not 0): the table of these is
// found now. Returns its line of the fingerprint, else "".
std::string agree_on_table(Plan& plan, const Setup& setup, const Units& units, Rendezvous& rendezvous,
                           int64_t batch_rows);

// Lines of the fingerprint: the contents of the table's file. "" without a table.
std::string table_lines(const Plan& plan);

}  // namespace heddle::engine
