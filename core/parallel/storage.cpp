// LibTorch resizes a GPU's storage only in its CUDA library; since no byte is kept, the allocator is enough.
#include "heddle/parallel/shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace heddle::parallel {

void resize_storage(const at::Tensor& alias, size_t bytes) {
  c10::StorageImpl& storage = *alias.storage().unsafeGetStorageImpl();
  if (storage.nbytes() == bytes) return;
  storage.set_data_ptr_noswap({nullptr, alias.device()});  // freed first: both at once might not fit
  if (bytes > 0) storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

void lay_flat(std::span<ParameterSlot* const> slots, c10::Device device) {
  constexpr int64_t kAlign = 16;
  struct Line {
    std::vector<std::pair<ParameterSlot*, int64_t>> places;
    int64_t end = 0;
  };
  at::NoGradGuard no_gradients;
  std::map<at::ScalarType, Line> lines;
  // Frozen layers of one input stay neighbours where adapters that train stand between them.
  std::vector<ParameterSlot*> ordered(slots.begin(), slots.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const ParameterSlot* slot) { return slot->trainable(); });
  for (ParameterSlot* slot : ordered) {
    if (!slot->tensor->is_meta()) continue;
    Line& line = lines[slot->tensor->scalar_type()];
    line.places.emplace_back(slot, line.end);
    line.end += (slot->tensor->numel() + kAlign - 1) / kAlign * kAlign;
  }
  for (const auto& [dtype, line] : lines) {
    const at::Tensor flat = at::empty({line.end}, at::TensorOptions().dtype(dtype).device(device));
    for (const auto& [slot, at] : line.places)
      slot->point(flat.narrow(0, at, slot->tensor->numel()).view(slot->tensor->sizes()).variable_data());
  }
}

}  // namespace heddle::parallel
