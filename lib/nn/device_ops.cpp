// One table for a process, which computes on one device.
#include "heddle/nn/device_ops.h"

namespace heddle::model {
namespace {

DeviceOps& table() {
  static DeviceOps ops;
  return ops;
}

}  // namespace

const DeviceOps& device_ops() {
  return table();
}

void set_device_ops(const DeviceOps& ops) {
  table() = ops;
}

}  // namespace heddle::model
