// Reads `step_scheduler:`.
#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/signals.h"

namespace heddle::recipe {
namespace {

const ConfigSchema<StepSection>& step_schema() {
  using S = StepSection;
  static const auto schema =
      ConfigSchema<S>()
          .field("global_batch_size", &S::global_batch_size, "Samples of one optimizer step, over all ranks.")
          .field("local_batch_size", &S::local_batch_size, "Samples of one microbatch on one rank.")
          .field("num_epochs", &S::num_epochs, "Rounds through the data; null: as many as max_steps takes.")
          .field("max_steps", &S::max_steps, "The most optimizer steps; null: all epochs.")
          .field("ckpt_every_steps", &S::ckpt_every_steps, "Steps between checkpoints; null: once an epoch.")
          .field("save_checkpoint_every_epoch", &S::save_checkpoint_every_epoch,
                 "A checkpoint at each epoch's end.")
          .field("validate_on_checkpoint", &S::validate_on_checkpoint, "Validate at each checkpoint too.")
          .field("val_every_steps", &S::val_every_steps,
                 "Steps between validations; null: at checkpoints only.")
          .field(
              "log_remote_every_steps", &S::log_remote_every_steps,
              "Steps whose metrics are written together where a GPU trains: the host waits for it only then, "
              "and a step's time is their mean.")
          .field("loss_average_window_steps", &S::loss_average_window_steps,
                 "For remote loggers; there are none.")
          .field("gc_every_steps", &S::gc_every_steps, "For Python's garbage collector; there is none.")
          .field("start_step", &S::start_step, "The first step.")
          .later("start_step", "a checkpoint says where a run goes on")
          .field("start_epoch", &S::start_epoch, "The first epoch.")
          .later("start_epoch", "a checkpoint says where a run goes on")
          .field(
              "max_skipped_updates", &S::max_skipped_updates,
              "Updates in a row that may be skipped as the loss or the gradient norm is not finite, before "
              "the run ends with status 1; null: any number.")
          .field("preemption_signal", &S::preemption_signal,
                 "Signals that save a checkpoint and end the run; null: none does.")
          .field("preemption_sender", &S::preemption_sender,
                 "Who sends them: scheduler (the run then ends with status 0) or person (143 for SIGTERM, "
                 "else 130); null: a scheduler where torchrun, Slurm or MPI started the run, a person "
                 "elsewhere.");
  return schema;
}

std::vector<int> signals_of(const Node& value) {
  const auto kind = value.kind();
  if (kind == Node::Kind::null) return {};
  if (kind == Node::Kind::list) {
    std::vector<int> all;
    for (const Node& item : value.items())
      for (const int number : signals_of(item)) all.push_back(number);
    return all;
  }
  if (kind != Node::Kind::integer && kind != Node::Kind::text)
    throw Error(ErrorCode::config, value.where(),
                "expected the name or number of a signal, a list of them, or null, got " + value.written());
  const std::string name = kind == Node::Kind::text ? value.as_text() : signal_name(value.as_integer());
  if (const auto number = signal_of(name)) return {*number};
  throw Error(ErrorCode::config, value.where(),
              value.written() +
                  " is not a signal that a run can save and end on; there are: " + text::join(signal_names()),
              "name one of them or give its number, or null for none");
}

void check_numbers(const Node& section, const StepSection& steps, SectionErrors& found) {
  const auto positive = [&](const char* key, std::optional<int64_t> value,
                            const std::string& condition = "") {
    found.require_positive(section, key, value, condition);
  };
  found.require_positive(section, "global_batch_size", steps.global_batch_size, "", kLargestSize);
  found.require_positive(section, "local_batch_size", steps.local_batch_size, "", kLargestSize);
  positive("num_epochs", steps.num_epochs, " or None if max_steps is provided");
  positive("max_steps", steps.max_steps);
  positive("ckpt_every_steps", steps.ckpt_every_steps);
  positive("val_every_steps", steps.val_every_steps, " if not None");
  positive("log_remote_every_steps", steps.log_remote_every_steps);
  positive("loss_average_window_steps", steps.loss_average_window_steps);
  positive("max_skipped_updates", steps.max_skipped_updates, " if not None");
  positive("gc_every_steps", steps.gc_every_steps, " if not None");
  for (const auto& [key, value] :
       {std::pair{"start_step", steps.start_step}, std::pair{"start_epoch", steps.start_epoch}})
    found.check({key}, [&, key = key, value = value] {
      if (value < 0)
        throw Error(ErrorCode::config, where_of(section, key),
                    std::string(key) + " must be greater than or equal to 0, got " + std::to_string(value));
    });
}

void check_sender(const Node& section, const std::optional<std::string>& sender) {
  if (sender && *sender != "scheduler" && *sender != "person")
    throw Error(ErrorCode::config, where_of(section, "preemption_sender"),
                "expected scheduler, person or null, got '" + text::excerpt(*sender) + "'");
}

}  // namespace

std::vector<FieldInfo> step_fields() {
  return step_schema().fields();
}

StepSection read_steps(const Node& section, NotBuilt& not_built, SectionErrors& found) {
  const StepSection given = read_fields(step_schema(), section, found);
  check_numbers(section, given, found);
  std::vector<int> signals;
  found.check({"preemption_signal"}, [&] { signals = signals_of(given.preemption_signal); });
  found.check({"preemption_sender"}, [&] { check_sender(section, given.preemption_sender); });
  StepSection steps = step_schema().read(right_keys(section, found));
  steps.where = where_of(section, "global_batch_size");
  steps.val_where = where_of(section, "val_every_steps");
  steps.stop_signals = std::move(signals);
  add_not_built(not_built, "step_scheduler", step_schema(), steps);
  return steps;
}

}  // namespace heddle::recipe
