// Numbers documents: a token's document is the number of documents that end before it.
#include "lib/decoder/recurrence/document_marks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "heddle/nn/device_ops.h"

namespace heddle::decoder {

DocumentMarks marks_of(const at::Tensor& documents, int64_t rows, int64_t sequence,
                       const at::TensorOptions& like) {
  const at::TensorOptions whole = like.dtype(at::kLong).requires_grad(false);
  if (whole.device().is_meta()) {  // bucketize() does not support meta tensors
    const at::Tensor shape = at::empty({rows, sequence}, whole);
    return {shape, shape};
  }
  const at::Tensor begins = model::sent_to(documents, whole.device()).to(at::kLong);
  const at::Tensor token = at::arange(rows * sequence, whole);
  const at::Tensor document =
      at::bucketize(token, begins.narrow(0, 1, begins.size(0) - 1), /*out_int32=*/false, /*right=*/true);
  return {document.view({rows, sequence}),
          (token - at::index_select(begins, 0, document)).view({rows, sequence})};
}

}  // namespace heddle::decoder
