// Configuration of distillation: the teacher and the loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/model/batch.h"

namespace heddle::distill {

// Fields of NeMo AutoModel's KDLoss.
struct KdLoss {
  int64_t ignore_index = Batch::kIgnore;
  double temperature = 1;
  bool fp32_upcast = true;
  int64_t chunk_size = 0;
  std::optional<std::string> tp_group;
};

struct Config {
  Node teacher_model;
  double kd_ratio = 0.5;
  KdLoss kd_loss_fn;
  bool offload_teacher_model = false, separate_meshes = false;
  Node teacher_distributed;
};

ConfigSchema<Config> schema();

}  // namespace heddle::distill

template <>
struct heddle::FieldType<heddle::distill::KdLoss> {
  static std::string type_name() { return "map"; }
  static heddle::distill::KdLoss read(const Node& value);
  static Node write(const heddle::distill::KdLoss& value);
};
