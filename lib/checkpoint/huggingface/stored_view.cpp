// Views only.
#include "lib/checkpoint/huggingface/stored_view.h"

#include <vector>

namespace heddle::checkpoint {

at::Tensor as_parameter(const at::Tensor& box, const StoredPart& part, const stored::Common& common) {
  at::Tensor view = box;
  for (size_t d = part.dims.size(); d-- > 0;)
    if (part.dims[d] < 0) view = view.squeeze(static_cast<int64_t>(d));
  view = view.permute(stored::permutation(part));
  std::vector<bool> run(common.parameter_size.size(), false);
  for (const int64_t along : part.dims)
    if (along >= 0) run[along] = true;
  for (size_t d = 0; d < run.size(); ++d)
    if (!run[d]) view = view.unsqueeze(static_cast<int64_t>(d));
  return view;
}

at::Tensor piece_of(const at::Tensor& of_whole, std::span<const int64_t> offset,
                    const stored::Common& common) {
  at::Tensor piece = of_whole;
  for (size_t d = 0; d < offset.size(); ++d)
    piece =
        piece.narrow(static_cast<int64_t>(d), common.in_parameter[d] - offset[d], common.parameter_size[d]);
  return piece;
}

}  // namespace heddle::checkpoint
