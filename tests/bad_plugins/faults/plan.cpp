// A plan of tensor parallelism, whose styles are missing if HEDDLE_FAULT is no_styles.
#include "fault.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("faulty_plan", "0.1.0", "plan faulty") {
  std::vector<std::pair<std::string, std::string>> styles = {{"model.layers.*.mlp.up_proj", "colwise"}};
  if (faults::is("no_styles")) styles.clear();
  plugin.plan("faulty", styles);
}
