// The door of pipeline parallelism: the block `pipeline:`. The schedules come later.
#include "config.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("pipeline", "0.1.0", "section pipeline") {
  heddle::OfferedSection& section = plugin.section("pipeline", "pp_size", heddle::pipeline::schema());
  section.absent_error =
      "`pp_size={n}` (> 1) enables pipeline parallelism but no `distributed.pipeline` block was provided. "
      "Add a "
      "`distributed.pipeline` section (e.g. `pp_schedule`, `pp_microbatch_size`); an empty `pipeline: {}` "
      "selects "
      "defaults.";
  section.idle_warning =
      "`distributed.pipeline` is set but pp_size={n} (<= 1): pipeline parallelism is disabled and the "
      "pipeline "
      "settings are ignored. Set pp_size > 1 to enable it.";
  section.derive = heddle::pipeline::derive;
  section.not_built = "its configuration is read and checked, but pipelines are not built yet";
}
