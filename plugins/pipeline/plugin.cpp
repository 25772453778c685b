// Entry point of the plugin pipeline: the section `pipeline:` and its schedules.
#include "config.h"
#include "heddle/sdk.h"
#include "schedules.h"
#include "search.h"

HEDDLE_PLUGIN("pipeline", "0.3.0", "section pipeline", "schedule gpipe", "schedule 1f1b", "schedule zb1p",
              "schedule zb2p", "schedule loopedbfs looped_bfs", "schedule dfs",
              "schedule interleaved1f1b interleaved_1f1b", "schedule interleavedzerobubble zero_bubble",
              "schedule zbvzerobubble v_schedule", "schedule dualpipev", "schedule vhalf", "schedule vmin",
              "schedule auto") {
  using namespace heddle::pipeline;
  heddle::OfferedSection& section = plugin.section("pipeline", "pp_size", schema());
  section.absent_error =
      "`pp_size={n}` (> 1) enables pipeline parallelism but no `distributed.pipeline` block was provided. "
      "Add a `distributed.pipeline` section (e.g. `pp_schedule`, `pp_microbatch_size`); an empty "
      "`pipeline: {}` selects defaults.";
  section.idle_warning =
      "`distributed.pipeline` is set but pp_size={n} (<= 1): pipeline parallelism is disabled and the "
      "pipeline settings are ignored. Set pp_size > 1 to enable it.";
  section.derive = derive;
  section.pipeline = pipeline_config;
  plugin.schedule<OneStage<gpipe>>("gpipe");
  plugin.schedule<OneStage<one_forward_one_backward>>("1f1b");
  plugin.schedule<OneStage<zb1p>>("zb1p");
  plugin.schedule<OneStage<zb2p>>("zb2p");
  plugin.schedule<Looped<looped_bfs>>("loopedbfs");
  plugin.schedule<Looped<dfs>>("dfs");
  plugin.schedule<Looped<interleaved_1f1b>>("interleaved1f1b");
  plugin.schedule<Looped<interleaved_zero_bubble>>("interleavedzerobubble");
  plugin.schedule<InAV<zbv_zero_bubble>>("zbvzerobubble");
  plugin.schedule<InAV<dual_pipe_v>>("dualpipev");
  plugin.schedule<InAV<v_half>>("vhalf");
  plugin.schedule<InAV<v_min>>("vmin");
  plugin.schedule<Auto>("auto");
}
