// Reads `step_scheduler:`.
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

const ConfigSchema<StepSection>& step_schema() {
  using S = StepSection;
  static const auto schema =
      ConfigSchema<S>()
          .field("global_batch_size", &S::global_batch_size,
                 "Number of samples per optimizer step, over all ranks.", positive("", kLargestSize))
          .field("local_batch_size", &S::local_batch_size, "Number of samples per microbatch on one rank.",
                 positive("", kLargestSize))
          .field(
              "num_epochs", &S::num_epochs,
              "Number of passes over the data. null: as many as max_steps needs, or 10 if that is null too.",
              positive("or None if max_steps is provided"))
          .field("max_steps", &S::max_steps, "Maximum number of optimizer steps. null: all epochs.",
                 positive())
          .field("ckpt_every_steps", &S::ckpt_every_steps,
                 "Number of steps between checkpoints. null: once per epoch.", positive())
          .field("save_checkpoint_every_epoch", &S::save_checkpoint_every_epoch,
                 "Save a checkpoint at the end of each epoch.")
          .field("validate_on_checkpoint", &S::validate_on_checkpoint, "Validate at each checkpoint too.")
          .field("val_every_steps", &S::val_every_steps,
                 "Number of steps between validations. null: at checkpoints only.", positive("if not None"))
          .field("log_remote_every_steps", &S::log_remote_every_steps,
                 "Number of steps whose metrics are written together on a GPU. The host waits for the "
                 "GPU only "
                 "then, and the reported time of a step is the mean.",
                 positive())
          .field("loss_average_window_steps", &S::loss_average_window_steps,
                 "Ignored: heddle has no remote logger.", positive())
          .field("gc_every_steps", &S::gc_every_steps, "Ignored: heddle has no garbage collector.",
                 positive("if not None"))
          .field("start_step", &S::start_step, "Ignored at 0, its only value.",
                 at_least<int64_t>(0, "must be greater than or equal to 0"))
          .later("start_step", "the resume position comes from the checkpoint")
          .field("start_epoch", &S::start_epoch, "Ignored at 0, its only value.",
                 at_least<int64_t>(0, "must be greater than or equal to 0"))
          .later("start_epoch", "the resume position comes from the checkpoint")
          .field(
              "max_skipped_updates", &S::max_skipped_updates,
              "Maximum number of consecutive updates that are skipped because the loss or the gradient norm "
              "is not finite; the run then ends with status 1. null: no limit.",
              positive("if not None"))
          .field("preemption_signal", &S::stop_signals,
                 "Signals that save a checkpoint and stop the run: a name, a number, or a list of them. "
                 "null: no "
                 "signal.")
          .field("preemption_sender", &S::preemption_sender,
                 "Sender of these signals: scheduler (the run then ends with status 0) or person (143 for "
                 "SIGTERM, else 130). Default: scheduler if torchrun, Slurm or MPI started the run, else "
                 "person.",
                 OneOf{{"scheduler", "person"}});
  return schema;
}

}  // namespace

std::vector<FieldInfo> step_fields() {
  return step_schema().fields();
}

StepSection read_steps(const Node& section, NotBuilt& not_built, SectionErrors& found) {
  StepSection steps = step_schema().read(section, found);
  steps.where = key_location(section, "global_batch_size");
  steps.val_where = key_location(section, "val_every_steps");
  add_not_built(not_built, "step_scheduler", step_schema(), steps);
  return steps;
}

}  // namespace heddle::recipe
