// The tables of all sections.
#include "lib/run/recipe/fields.h"

#include "lib/run/recipe/benchmark.h"

namespace heddle {

std::vector<SectionFields> section_fields() {
  return {{"step_scheduler", recipe::step_fields()},
          {"model", recipe::model_fields()},
          {"dataset", recipe::dataset_fields()},
          {"packed_sequence", recipe::packed_fields()},
          {"dataloader", recipe::dataloader_fields()},
          {"loss_fn", recipe::loss_fields()},
          {"optimizer", recipe::optimizer_fields()},
          {"optimizer.param_group_overrides", recipe::group_fields()},
          {"lr_scheduler", recipe::lr_fields()},
          {"clip_grad_norm", recipe::clipping_fields()},
          {"checkpoint", recipe::checkpoint_fields()},
          {"validation_samples", recipe::samples_fields()},
          {"benchmark", recipe::benchmark_fields()},
          {"mfu", recipe::mfu_fields()}};
}

}  // namespace heddle
