// LibTorch resizes a GPU's storage only from its CUDA library; as no byte is kept, the allocator is enough.
#include "heddle/parallel/storage.h"

#include <utility>

namespace heddle::parallel {

void resize_storage(const at::Tensor& alias, size_t bytes) {
  c10::StorageImpl& storage = *alias.storage().unsafeGetStorageImpl();
  if (storage.nbytes() == bytes) return;
  if (alias.is_meta()) return storage.set_nbytes(bytes);
  storage.set_data_ptr_noswap({nullptr, alias.device()});  // freed first: both at once might not fit
  if (bytes > 0) storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

}  // namespace heddle::parallel
