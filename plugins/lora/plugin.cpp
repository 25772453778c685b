// lora: the section peft of a recipe.
#include "config.h"
#include "heddle/plugin/transform.h"
#include "lora.h"

HEDDLE_PLUGIN("lora", "0.1.0", "transform peft") {
  using namespace heddle::lora;
  auto& offered = plugin.transform<Lora>("peft", schema());
  offered.order = 100;  // after freeze_config: what that freezes is frozen here too
}
