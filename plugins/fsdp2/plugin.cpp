// Entry point of the plugin fsdp2.
#include "heddle/sdk.h"
#include "strategy.h"

HEDDLE_PLUGIN("fsdp2", "0.1.0") {
  plugin.strategy<heddle::fsdp2::Fsdp2>("fsdp2", heddle::fsdp2::schema());
}
