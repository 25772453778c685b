// Entry point of the plugin megatron_fsdp, which offers two strategies with one implementation.
#include "heddle/sdk.h"
#include "strategy.h"

HEDDLE_PLUGIN("megatron_fsdp", "0.2.0", "strategy megatron_fsdp megatron-fsdp mfsdp", "strategy megatron") {
  using namespace heddle::megatron_fsdp;
  plugin.strategy<MegatronFsdp>("megatron_fsdp", schema());
  plugin.strategy<Megatron>("megatron", megatron_schema());
}
