// Entry point of the plugin context.
#include "config.h"
#include "heddle/sdk.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("context", "0.1.0", "section context", "parallelizer context") {
  plugin.section("context", "cp_size", heddle::context::method_schema()).idle_warning =
      "`distributed.context` is set but cp_size={n} (<= 1): the sequence is not split and the section is "
      "ignored";
  plugin.parallelizer<heddle::context::ContextParallel>("context", heddle::context::schema());
}
