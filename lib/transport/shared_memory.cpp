// Tensors over memory of this rank's arena.
#include "heddle/transport/shared_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "core/mesh/wrapped.h"
#include "lib/transport/shm/shm_communicator.h"

namespace heddle::mesh {
namespace {

// Bytes. Copying fewer is faster than waking a rank that has to read them.
constexpr size_t kFewest = 128 * 1024;

bool may_be_shared(const at::TensorOptions& options) {
  return options.device().is_cpu() && options.layout() == at::kStrided && !options.pinned_memory();
}

}  // namespace

at::Tensor shared_empty(const Communicator& group, at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto* sharing = dynamic_cast<const ShmCommunicator*>(&unwrapped(group));
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (sharing == nullptr || bytes < kFewest || !may_be_shared(options)) return at::empty(sizes, options);
  const std::shared_ptr<Arena> arena = sharing->arena();
  char* memory = arena->lend(bytes);
  if (memory == nullptr) return at::empty(sizes, options);
  const auto give_back = [arena, bytes](void* lent) { arena->take_back(static_cast<char*>(lent), bytes); };
  return at::from_blob(memory, sizes, give_back, options.requires_grad(false))
      .set_requires_grad(options.requires_grad());
}

}  // namespace heddle::mesh
