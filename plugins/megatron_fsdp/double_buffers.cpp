// Assignment of units to two shared buffers: the largest set of equal units, or all units.
#include <algorithm>
#include <map>
#include <utility>

#include "model.h"

namespace heddle::megatron_fsdp {
namespace {

using sharding::DoubleBuffer;
using sharding::TransientStorage;
using Storages = std::vector<TransientStorage*>;  // of one unit

std::vector<size_t> sizes_of(const Storages& storages) {
  std::vector<size_t> sizes;
  for (const TransientStorage* storage : storages) sizes.push_back(storage->bytes());
  return sizes;
}

// Returns the sizes of the buffers: those of the most frequent unit size, or for each k the largest k-th
// storage.
std::vector<size_t> buffer_sizes(std::vector<Storages>& units, Buffering buffering) {
  std::vector<size_t> buffers;
  if (buffering == Buffering::two_for_all_units) {
    for (Storages& storages : units) {
      std::sort(storages.begin(), storages.end(),
                [](TransientStorage* a, TransientStorage* b) { return a->bytes() > b->bytes(); });
      const std::vector<size_t> sizes = sizes_of(storages);
      buffers.resize(std::max(buffers.size(), sizes.size()));
      for (size_t i = 0; i < sizes.size(); ++i) buffers[i] = std::max(buffers[i], sizes[i]);
    }
    return buffers;
  }
  std::map<std::vector<size_t>, int> alike;
  int most = 0;
  for (const Storages& storages : units)
    if (const int count = ++alike[sizes_of(storages)]; count > most)
      most = count, buffers = sizes_of(storages);
  return buffers;
}

void assign(std::vector<Storages> units, const Options& options, c10::Device device,
            std::deque<DoubleBuffer>& buffers) {
  const std::vector<size_t> sizes = buffer_sizes(units, options.buffering);
  const size_t first = buffers.size();
  for (const size_t bytes : sizes) buffers.emplace_back(bytes, device);
  for (const Storages& storages : units) {
    const bool fits = options.buffering == Buffering::two_for_all_units || sizes_of(storages) == sizes;
    for (size_t i = 0; i < storages.size(); ++i) {
      if (fits)
        storages[i]->use(&buffers[first + i]);
      else if (options.keep_outliers)
        storages[i]->keep();
    }
  }
}

}  // namespace

std::deque<DoubleBuffer> assign_double_buffers(const sharding::Model& model, const Options& options,
                                               c10::Device device) {
  std::deque<DoubleBuffer> buffers;
  if (options.buffering == Buffering::from_the_allocator) return buffers;
  std::vector<Storages> parameters, sums;
  for (const auto& turn : model.turns) {
    Storages mine, of_gradients;
    for (const auto& use : turn.uses) {
      Bucket& bucket = static_cast<Bucket&>(*use.bucket);
      if (bucket.users() > 1) continue;
      if (bucket.split().parameters && !bucket.stays()) mine.push_back(&bucket.storage());
      auto* gradients = static_cast<Gradients*>(bucket.gradients());
      if (gradients != nullptr && gradients->split()) of_gradients.push_back(&gradients->storage());
    }
    if (!mine.empty()) parameters.push_back(std::move(mine));
    if (!of_gradients.empty()) sums.push_back(std::move(of_gradients));
  }
  assign(std::move(parameters), options, device, buffers);
  assign(std::move(sums), options, device, buffers);
  return buffers;
}

}  // namespace heddle::megatron_fsdp
