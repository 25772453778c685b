// Allocation of the two buffers per dtype, and views of them.
#include "reduce_buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "heddle/transport/shared_memory.h"

namespace heddle::fsdp2 {

ReduceBuffers::Buffers& ReduceBuffers::buffers_like(const at::Tensor& like) {
  for (Buffers& buffers : buffers_)
    if (buffers.like.scalar_type() == like.scalar_type() && buffers.like.device() == like.device())
      return buffers;
  return buffers_.emplace_back(Buffers{like, 0, {}, {}});
}

void ReduceBuffers::expect(const at::Tensor& like, int64_t part) {
  Buffers& buffers = buffers_like(like);
  buffers.largest = std::max(buffers.largest, part);
}

at::Tensor ReduceBuffers::input(size_t turn, const at::Tensor& like, int64_t part) {
  Buffers& buffers = buffers_like(like);
  at::Tensor& buffer = buffers.inputs[turn];
  const int64_t ranks = ranks_->size();
  if (!buffer.defined()) buffer = mesh::shared_empty(*ranks_, {ranks * buffers.largest}, like.options());
  return buffer.as_strided({ranks * part}, {1}, 0);
}

at::Tensor ReduceBuffers::output(size_t turn, const at::Tensor& like, int64_t part) {
  Buffers& buffers = buffers_like(like);
  at::Tensor& buffer = buffers.outputs[turn];
  if (!buffer.defined()) buffer = at::empty({buffers.largest}, like.options());
  return buffer.as_strided({part}, {1}, 0);
}

}  // namespace heddle::fsdp2
