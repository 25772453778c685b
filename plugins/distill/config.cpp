// Reader of a distillation recipe. Refuses values of AutoModel's KDLoss that heddle does not support.
#include "config.h"

#include <cmath>

#include "heddle/base/error.h"

namespace heddle::distill {
namespace {

void check_ratio(const Node& value) {
  if (const double ratio = value.as_real(); !(ratio >= 0 && ratio <= 1))
    throw range_error(value, "from 0 to 1");
}

void check_temperature(const Node& value) {
  if (const double temperature = value.as_real(); !(temperature > 0) || std::isinf(temperature))
    throw range_error(value, "above 0");
}

void check_ignored(const Node& value) {
  if (value.as_integer() != Batch::kIgnore)
    throw Error(ErrorCode::config, value.where(),
                "ignore_index must be " + std::to_string(Batch::kIgnore) + ", got " + value.written(),
                "leave ignore_index out");
}

void check_group(const Node& value) {
  if (!value.is_null())
    throw Error(ErrorCode::config, value.where(),
                "tp_group must be null, because tp_size determines the ranks of a split vocabulary",
                "remove tp_group");
}

const ConfigSchema<KdLoss>& loss_schema() {
  static const auto schema =
      ConfigSchema<KdLoss>()
          .field("ignore_index", &KdLoss::ignore_index, "Label of tokens without a loss.",
                 Check{"-100", check_ignored})
          .field("temperature", &KdLoss::temperature, "Divisor of the logits of both models.",
                 Check{"above 0", check_temperature})
          .field("fp32_upcast", &KdLoss::fp32_upcast, "Ignored: the loss is always computed in float32.")
          .field("chunk_size", &KdLoss::chunk_size,
                 "Number of tokens whose logits are computed at once. 0: as many as fit in a block of 16 MiB "
                 "(CPU) or 256 MiB (device).",
                 at_least<int64_t>(0))
          .field("tp_group", &KdLoss::tp_group,
                 "Ignored at null, its only value: tp_size determines the ranks.",
                 Check{"null", check_group});
  return schema;
}

}  // namespace

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("teacher_model", &Config::teacher_model,
             "Teacher model, with the fields of the section model. It is frozen and runs on the student's "
             "ranks.")
      .field("kd_ratio", &Config::kd_ratio,
             "Weight of the distillation loss. The loss is (1 - kd_ratio) * cross entropy + kd_ratio * "
             "distillation loss.",
             Check{"from 0 to 1", check_ratio})
      .field("kd_loss_fn", &Config::kd_loss_fn,
             "Settings of the distillation loss: temperature and chunk_size. ignore_index (-100), "
             "fp32_upcast and tp_group (null) are accepted.")
      .field("offload_teacher_model", &Config::offload_teacher_model,
             "Keep the teacher in host memory between forwards.")
      .later("offload_teacher_model", "the teacher's parameters stay on the device (fsdp2 shards them)")
      .field("separate_meshes", &Config::separate_meshes,
             "Ignored: the teacher always runs on the student's ranks. Results are the same.")
      .field("teacher_distributed", &Config::teacher_distributed,
             "Ignored: the teacher is distributed like the student.");
}

}  // namespace heddle::distill

namespace heddle {

using distill::KdLoss;

KdLoss FieldType<KdLoss>::read(const Node& value) {
  return value.is_null() ? KdLoss{} : distill::loss_schema().read(config::without_target(value, "KDLoss"));
}

Node FieldType<KdLoss>::write(const KdLoss& value) {
  return distill::loss_schema().write(value);
}

}  // namespace heddle
