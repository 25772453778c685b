// Chunks of columns.
#include "sequence.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include "heddle/base/error.h"

namespace heddle::context {
namespace {

int64_t chunks_of(const Place& place) {
  return place.cut == Cut::head_tail ? 2 * place.ranks : place.ranks;
}

}  // namespace

int64_t padded_length(int64_t length, const Place& place) {
  const int64_t chunks = chunks_of(place);
  return (length + chunks - 1) / chunks * chunks;
}

at::Tensor own_columns(const at::Tensor& x, int64_t padding, const Place& place) {
  const int64_t length = padded_length(x.size(1), place), chunk = length / chunks_of(place);
  const at::Tensor whole = x.size(1) == length ? x : at::constant_pad_nd(x, {0, length - x.size(1)}, padding);
  const at::Tensor head = whole.narrow(1, chunk * place.rank, chunk);
  if (place.cut == Cut::contiguous) return head.clone(at::MemoryFormat::Contiguous);
  return at::cat({head, whole.narrow(1, length - chunk * (place.rank + 1), chunk)}, 1);
}

void cut(Batch& batch, const Place& place) {
  if (batch.documents.defined())
    throw Error(ErrorCode::not_built, "context",
                "documents within a sequence are not built under context parallelism",
                "leave cp_size at 1 for packed documents");
  const at::Tensor positions =
      batch.positions.defined()
          ? batch.positions
          : at::arange(batch.tokens.size(1), batch.tokens.options()).expand(batch.tokens.sizes());
  batch.tokens = own_columns(batch.tokens, 0, place);
  batch.positions = own_columns(positions, 0, place);
  if (batch.labels.defined()) batch.labels = own_columns(batch.labels, Batch::kIgnore, place);
}

}  // namespace heddle::context
