// Gathers and sums of rows and columns. Only uneven parts are copied to padded memory.
#include "collectives.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "parts.h"

namespace heddle::tensor {
namespace {

at::Tensor empty_rows(int64_t rows, const at::Tensor& like) {
  return at::empty({rows, like.size(1)}, like.options().requires_grad(false));
}

}  // namespace

at::Tensor exclusive(at::Tensor tensor) {
  const bool alone = tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous();
  return alone ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

at::Tensor sum_all(at::Tensor tensor, Communicator& ranks) {
  ranks.all_reduce(tensor)->wait();
  return tensor;
}

at::Tensor all_rows(const at::Tensor& own, int64_t total, Communicator& ranks) {
  const int64_t chunk = row_chunk(total, ranks.size());
  at::Tensor all = empty_rows(chunk * ranks.size(), own);
  at::Tensor mine = own.contiguous();
  if (own.size(0) < chunk) {
    mine = all.narrow(0, chunk * ranks.rank(), chunk);
    mine.narrow(0, 0, own.size(0)).copy_(own);
    mine.narrow(0, own.size(0), chunk - own.size(0)).zero_();
  }
  ranks.all_gather(all, mine)->wait();
  return all.narrow(0, 0, total);
}

at::Tensor padded(const at::Tensor& whole, Communicator& ranks) {
  const int64_t rows = whole.size(0), all = row_chunk(rows, ranks.size()) * ranks.size();
  if (rows == all) return whole.contiguous();
  at::Tensor out = empty_rows(all, whole);
  out.narrow(0, 0, rows).copy_(whole);
  out.narrow(0, rows, all - rows).zero_();
  return out;
}

at::Tensor sum_own_rows(const at::Tensor& whole, Communicator& ranks) {
  at::Tensor sum = empty_rows(row_chunk(whole.size(0), ranks.size()), whole);
  ranks.reduce_scatter(sum, padded(whole, ranks))->wait();
  return sum.narrow(0, 0, rows_of(whole.size(0), ranks.size(), ranks.rank()).count);
}

at::Tensor own_rows(const at::Tensor& whole, Communicator& ranks) {
  const Part mine = rows_of(whole.size(0), ranks.size(), ranks.rank());
  return whole.narrow(0, mine.begin, mine.count).clone(at::MemoryFormat::Contiguous);
}

at::Tensor all_columns(const at::Tensor& own, int64_t total, Communicator& ranks) {
  const int64_t widest = part_of(total, ranks.size(), 0).count, rows = own.size(0);
  at::Tensor mine = own.contiguous();
  if (own.size(1) < widest) {
    mine = at::empty({rows, widest}, own.options().requires_grad(false));
    mine.narrow(1, 0, own.size(1)).copy_(own);
    mine.narrow(1, own.size(1), widest - own.size(1)).zero_();
  }
  at::Tensor all = at::empty({ranks.size(), rows, widest}, mine.options());
  ranks.all_gather(all, mine)->wait();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks.size(); ++rank)
    parts.push_back(all.select(0, rank).narrow(1, 0, part_of(total, ranks.size(), rank).count));
  return at::cat(parts, 1);
}

at::Tensor own_columns(const at::Tensor& whole, Communicator& ranks) {
  const Part mine = part_of(whole.size(1), ranks.size(), ranks.rank());
  return whole.narrow(1, mine.begin, mine.count).clone(at::MemoryFormat::Contiguous);
}

}  // namespace heddle::tensor
