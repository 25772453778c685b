// Entry point of the plugin lora, which offers the section peft.
#include "config.h"
#include "heddle/plugin/transform.h"
#include "lora.h"

HEDDLE_PLUGIN("lora", "0.1.0", "transform peft") {
  using namespace heddle::lora;
  auto& offered = plugin.make<heddle::OfferedTransform, Lora>("peft", schema());
  offered.order = 100;  // after freeze_config, so parameters that it froze stay frozen
}
