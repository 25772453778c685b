// The door of megatron_fsdp: its words. The hands come later.
#include "config.h"
#include "heddle/sdk.h"

namespace {

heddle::Needs needs() {
  heddle::Needs needs;
  needs.axes = {"dp", "cp", "tp"};
  needs.refuses = {{"pp", "megatron_fsdp does not support pipeline parallelism"},
                   {"ep", "megatron_fsdp does not support expert parallelism"}};
  return needs;
}

}  // namespace

HEDDLE_PLUGIN("megatron_fsdp", "0.1.0", "strategy megatron_fsdp megatron-fsdp mfsdp") {
  plugin.strategy_words("megatron_fsdp", heddle::megatron_fsdp::schema(), needs(),
                        "its configuration is read and checked, but training with it is not built yet");
}
