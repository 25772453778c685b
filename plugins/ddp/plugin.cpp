// Entry point of the plugin ddp.
#include "heddle/sdk.h"
#include "strategy.h"

HEDDLE_PLUGIN("ddp", "0.1.0") {
  plugin.strategy<heddle::ddp::Ddp>("ddp", heddle::ddp::schema());
}
