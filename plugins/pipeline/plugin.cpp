// The door of pipeline parallelism: the block `pipeline:` and its schedules.
#include "config.h"
#include "gpipe.h"
#include "heddle/sdk.h"
#include "one_forward_one_backward.h"

HEDDLE_PLUGIN("pipeline", "0.2.0", "section pipeline", "schedule gpipe", "schedule 1f1b") {
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
  section.pipeline = heddle::pipeline::words_of;
  section.resolve = [fields = section.resolve](const heddle::Node& given) {
    heddle::Resolved resolved = fields(given);
    const std::string later = heddle::pipeline::schedule_that_comes_later(resolved.values);
    if (!later.empty()) resolved.not_built.push_back(later);
    return resolved;
  };
  plugin.schedule<heddle::pipeline::GPipe>("gpipe");
  plugin.schedule<heddle::pipeline::OneForwardOneBackward>("1f1b");
}
