// Entry point of the plugin nccl.
#include "device.h"

HEDDLE_PLUGIN("nccl", "0.1.0", "device nccl") {
  plugin.device<heddle::nccl::Device>("nccl");
}
