// Ranges of visible keys as a GPU's kernels take them, made once for all layers that see a batch alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/nn/attention_core.h"
#include "lib/nn/attention/attend_varying.h"

namespace heddle::model {

struct DeviceRanges {
  at::Tensor host, device;        // int32 [queries, 2], as BlockedInputs::seen
  std::vector<DeviceCall> calls;  // of flash attention; empty where it does not take the tensors
};

// seen: on the CPU; keys: the number of rows of keys. Copies to the device of the queries.
HEDDLE_API DeviceRanges device_ranges(const at::Tensor& seen, int64_t keys, const at::Tensor& queries,
                                      const BlockedShape& shape);

// Returns the ranges of visible_keys(). The host reads the offsets of documents once per batch and set of
// options, whatever the number of layers; threads share what is kept.
std::shared_ptr<const DeviceRanges> kept_ranges(const Heads& heads, const at::Tensor& documents,
                                                const at::Tensor& queries);

}  // namespace heddle::model
