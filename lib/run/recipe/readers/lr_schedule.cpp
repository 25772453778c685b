// Reads `lr_scheduler:`.
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct LrScheduleFields : LrSection {
  std::optional<std::string> target;
  bool use_checkpoint = true, override_checkpoint = false;
};

void check_warmup(const Node& steps) {
  if (!steps.is_null() && (steps.kind() != Node::Kind::integer || steps.as_integer() < 0))
    throw Error(ErrorCode::config, steps.where(),
                "lr_warmup_steps must be an integer step count, got " + steps.written());
}

const ConfigSchema<LrScheduleFields>& lr_schedule_schema() {
  using W = LrScheduleFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target, "Class of the schedule.", ends_in({"OptimizerParamScheduler"}))
          .field<std::string>("lr_decay_style", &W::lr_decay_style,
                              "Decay of the learning rate after the warmup.",
                              OneOf{{"cosine", "linear", "constant", "inverse-square-root", "WSD"}})
          .field<std::optional<int64_t>>(
              "lr_warmup_steps", &W::lr_warmup_steps,
              "Steps from init_lr to max_lr. Default: a tenth of the run, at most 1000.",
              Check{"at least 0", check_warmup})
          .field<std::optional<int64_t>>("lr_decay_steps", &W::lr_decay_steps,
                                         "Step at which min_lr is reached. Default: the last step.",
                                         positive())
          .field<std::optional<double>>(
              "init_lr", &W::init_lr,
              "Learning rate at the first step of the warmup. Default: a tenth of the optimizer's lr.")
          .field<std::optional<double>>("max_lr", &W::max_lr,
                                        "Highest learning rate. Default: the optimizer's lr.")
          .field<std::optional<double>>(
              "min_lr", &W::min_lr,
              "Lowest learning rate of the decay. Default: a hundredth of the optimizer's lr.")
          .field<std::optional<double>>(
              "start_wd", &W::start_wd,
              "Weight decay at the first step. Default: the optimizer's weight_decay.")
          .field<std::optional<double>>(
              "end_wd", &W::end_wd, "Weight decay at wd_incr_steps. Default: the optimizer's weight_decay.")
          .field<std::optional<int64_t>>("wd_incr_steps", &W::wd_incr_steps,
                                         "Step at which end_wd is reached. Default: the last step.",
                                         positive())
          .field<std::string>("wd_incr_style", &W::wd_incr_style,
                              "Change of the weight decay from start_wd to end_wd.",
                              OneOf{{"constant", "linear", "cosine"}})
          .field<std::optional<int64_t>>("wsd_decay_steps", &W::wsd_decay_steps,
                                         "Number of steps of the final decay of the style WSD.", positive())
          .field<std::optional<std::string>>("lr_wsd_decay_style", &W::lr_wsd_decay_style,
                                             "Shape of the final decay of the style WSD.",
                                             OneOf{{"linear", "cosine", "exponential", "minus_sqrt"}})
          .field("use_checkpoint_opt_param_scheduler", &W::use_checkpoint,
                 "Ignored: a resumed run follows its configuration.")
          .field("override_opt_param_scheduler", &W::override_checkpoint,
                 "Use the values of the recipe when a run is resumed.")
          .later("override_opt_param_scheduler", "a resumed run follows the schedule of its configuration")
          .rule([](const W& w) {
            return w.lr_decay_style == "WSD" && (!w.wsd_decay_steps || !w.lr_wsd_decay_style)
                       ? "the style WSD needs wsd_decay_steps and lr_wsd_decay_style"
                       : "";
          })
          .rule([](const W& w) {
            return w.use_checkpoint && w.override_checkpoint
                       ? "both override and use-checkpoint are set: set override_opt_param_scheduler or "
                         "use_checkpoint_opt_param_scheduler to false"
                       : "";
          });
  return schema;
}

}  // namespace

std::vector<FieldInfo> lr_fields() {
  return lr_schedule_schema().fields();
}

LrSection read_lr_schedule(const Node& section, NotBuilt&) {
  LrScheduleFields words = lr_schedule_schema().read(section);
  words.where = section.where();
  return words;
}

}  // namespace heddle::recipe
