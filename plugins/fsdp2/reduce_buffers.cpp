// Allocation of the two buffers per dtype, and views of them.
#include "reduce_buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "heddle/transport/shared_memory.h"

namespace heddle::fsdp2 {

ReduceBuffers::Line& ReduceBuffers::line_of(const at::Tensor& like) {
  for (Line& line : lines_)
    if (line.like.scalar_type() == like.scalar_type() && line.like.device() == like.device()) return line;
  return lines_.emplace_back(Line{like, 0, {}, {}});
}

void ReduceBuffers::expect(const at::Tensor& like, int64_t part) {
  Line& line = line_of(like);
  line.largest = std::max(line.largest, part);
}

at::Tensor ReduceBuffers::input(size_t turn, const at::Tensor& like, int64_t part) {
  Line& line = line_of(like);
  at::Tensor& buffer = line.inputs[turn];
  const int64_t ranks = ranks_->size();
  if (!buffer.defined()) buffer = mesh::shared_empty(*ranks_, {ranks * line.largest}, like.options());
  return buffer.as_strided({ranks * part}, {1}, 0);
}

at::Tensor ReduceBuffers::output(size_t turn, const at::Tensor& like, int64_t part) {
  Line& line = line_of(like);
  at::Tensor& buffer = line.outputs[turn];
  if (!buffer.defined()) buffer = at::empty({line.largest}, like.options());
  return buffer.as_strided({part}, {1}, 0);
}

}  // namespace heddle::fsdp2
