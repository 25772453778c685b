// Reads the keys; what AutoModel's KDLoss takes and heddle does not is refused here.
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
                "labels without a loss are " + std::to_string(Batch::kIgnore) + ", got " + value.written(),
                "leave ignore_index out");
}

void check_group(const Node& value) {
  if (!value.is_null())
    throw Error(ErrorCode::config, value.where(), "the ranks of a split vocabulary are those of tp_size",
                "leave tp_group out");
}

const ConfigSchema<KdLoss>& loss_schema() {
  static const auto schema =
      ConfigSchema<KdLoss>()
          .field("ignore_index", &KdLoss::ignore_index, "The label of a token without a loss.",
                 Check{"-100", check_ignored})
          .field("temperature", &KdLoss::temperature, "Logits of both models are divided by it.",
                 Check{"above 0", check_temperature})
          .field("fp32_upcast", &KdLoss::fp32_upcast, "Taken: the loss is computed in float32 in any case.")
          .field("chunk_size", &KdLoss::chunk_size,
                 "Tokens whose logits exist at once; 0: as many as fit in a block.", at_least<int64_t>(0))
          .field("tp_group", &KdLoss::tp_group, "Null: it follows from tp_size.", Check{"null", check_group});
  return schema;
}

}  // namespace

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("teacher_model", &Config::teacher_model,
             "The teacher, as the section model names one: frozen, on the ranks of the student.")
      .field("kd_ratio", &Config::kd_ratio,
             "The loss is (1 - kd_ratio) times the cross entropy and kd_ratio times that of the teacher.",
             Check{"from 0 to 1", check_ratio})
      .field("kd_loss_fn", &Config::kd_loss_fn,
             "Fields of KDLoss: temperature, chunk_size; ignore_index -100, fp32_upcast, tp_group null.")
      .field("offload_teacher_model", &Config::offload_teacher_model,
             "Keep the teacher in the host's memory between its forwards.")
      .later("offload_teacher_model",
             "the teacher's parameters stay on the device; fsdp2 splits them over ranks")
      .field("separate_meshes", &Config::separate_meshes,
             "Taken: the teacher runs on the student's ranks, with the same numbers.")
      .field("teacher_distributed", &Config::teacher_distributed,
             "Taken: the teacher is distributed as the student is.");
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
