// Reads `lr_scheduler:`.
#include <array>

#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct LrScheduleFields : LrSection {
  std::optional<std::string> target;
  Node warmup;  // an integer; a fraction has its own message
  bool use_checkpoint = true, override_checkpoint = false;
};

const ConfigSchema<LrScheduleFields>& lr_schedule_schema() {
  using W = LrScheduleFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target, "OptimizerParamScheduler.")
          .field<std::string>("lr_decay_style", &W::lr_decay_style,
                              "cosine, linear, constant, inverse-square-root, WSD.")
          .field("lr_warmup_steps", &W::warmup,
                 "Steps from init_lr up to max_lr; null: a tenth, at most 1000.")
          .field<std::optional<int64_t>>("lr_decay_steps", &W::lr_decay_steps,
                                         "The step at which min_lr is reached; null: the last.")
          .field<std::optional<double>>("init_lr", &W::init_lr,
                                        "At step 0 of a warmup; null: a tenth of the optimizer's lr.")
          .field<std::optional<double>>("max_lr", &W::max_lr, "null: the optimizer's lr.")
          .field<std::optional<double>>("min_lr", &W::min_lr, "null: a hundredth of the optimizer's lr.")
          .field<std::optional<double>>("start_wd", &W::start_wd, "null: the optimizer's weight_decay.")
          .field<std::optional<double>>("end_wd", &W::end_wd, "null: the optimizer's weight_decay.")
          .field<std::optional<int64_t>>("wd_incr_steps", &W::wd_incr_steps,
                                         "The step at which end_wd is reached; null: the last.")
          .field<std::string>("wd_incr_style", &W::wd_incr_style, "constant, linear, cosine.")
          .field<std::optional<int64_t>>("wsd_decay_steps", &W::wsd_decay_steps,
                                         "WSD: the steps of its last part.")
          .field<std::optional<std::string>>("lr_wsd_decay_style", &W::lr_wsd_decay_style,
                                             "WSD: linear, cosine, exponential, minus_sqrt.")
          .field("use_checkpoint_opt_param_scheduler", &W::use_checkpoint,
                 "Taken, and changes nothing: a resumed run follows its configuration.")
          .field("override_opt_param_scheduler", &W::override_checkpoint, "On resuming, these values win.")
          .later("override_opt_param_scheduler", "a resumed run follows the schedule of its configuration");
  return schema;
}

void require_word(const Node& section, const std::string& key, const std::string& word,
                  std::span<const std::string> known) {
  for (const std::string& one : known)
    if (one == word) return;
  const std::string nearest = text::nearest(word, known);
  throw Error(ErrorCode::config, where_of(section, key),
              "unknown style '" + text::excerpt(word) + "'; there are: " + text::join(known),
              nearest.empty() ? "" : "did you mean '" + nearest + "'?");
}

const std::array<std::string, 5> kStyles = {"cosine", "linear", "constant", "inverse-square-root", "WSD"};
const std::array<std::string, 3> kWeightDecayStyles = {"constant", "linear", "cosine"};
const std::array<std::string, 4> kWsdStyles = {"linear", "cosine", "exponential", "minus_sqrt"};
const std::array<std::string, 1> kLrTargets = {"OptimizerParamScheduler"};

void check_words(const Node& section, const LrScheduleFields& words, SectionErrors& found) {
  found.check({"lr_decay_style"},
              [&] { require_word(section, "lr_decay_style", words.lr_decay_style, kStyles); });
  found.check({"wd_incr_style"},
              [&] { require_word(section, "wd_incr_style", words.wd_incr_style, kWeightDecayStyles); });
  found.check({"lr_wsd_decay_style"}, [&] {
    if (words.lr_wsd_decay_style)
      require_word(section, "lr_wsd_decay_style", *words.lr_wsd_decay_style, kWsdStyles);
  });
  found.require_positive(section, "wsd_decay_steps", words.wsd_decay_steps);
  found.require_positive(section, "lr_decay_steps", words.lr_decay_steps);
  found.require_positive(section, "wd_incr_steps", words.wd_incr_steps);
  found.check({"lr_decay_style", "wsd_decay_steps", "lr_wsd_decay_style"}, [&] {
    if (words.lr_decay_style == "WSD" && (!words.wsd_decay_steps || !words.lr_wsd_decay_style))
      throw Error(ErrorCode::config, section.where(),
                  "the style WSD needs wsd_decay_steps and lr_wsd_decay_style");
  });
  found.check({"use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler"}, [&] {
    if (words.use_checkpoint && words.override_checkpoint)
      throw Error(ErrorCode::config, where_of(section, "override_opt_param_scheduler"),
                  "both override and use-checkpoint are set.", "set one of the two to false");
  });
}

int64_t warmup_of(const Node& warmup) {
  if (warmup.kind() != Node::Kind::integer || warmup.as_integer() < 0)
    throw Error(ErrorCode::config, warmup.where(),
                "lr_warmup_steps must be an integer step count, got " + warmup.written());
  return warmup.as_integer();
}

}  // namespace

std::vector<FieldInfo> lr_fields() {
  return lr_schedule_schema().fields();
}

LrSection read_lr_schedule(const Node& section, NotBuilt&) {
  SectionErrors found;
  found.errors.attempt([&] { component(section, kLrTargets, ""); });
  LrScheduleFields words = read_fields(lr_schedule_schema(), section, found);
  found.check({"lr_warmup_steps"}, [&] {
    if (!words.warmup.is_null()) words.lr_warmup_steps = warmup_of(words.warmup);
  });
  check_words(section, words, found);
  found.errors.raise();
  words.where = section.where();
  return words;
}

}  // namespace heddle::recipe
