// Counting labels, and sums over ranks.
#include "lib/train/step_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include "heddle/base/error.h"

namespace heddle::train {

int64_t label_tokens(std::span<const Batch> batches) {
  int64_t count = 0;
  for (const Batch& batch : batches) {
    if (!batch.labels.defined())
      throw Error(ErrorCode::internal, "train", "a batch without labels has no loss",
                  "set Batch::labels, with Batch::kIgnore where a token does not count");
    if (batch.labels.is_meta()) continue;  // a dry world: nothing is computed
    count += at::ne(batch.labels.to(at::kCPU), Batch::kIgnore).sum().item<int64_t>();
  }
  return count;
}

void check_can_undo(const std::string& where, const IOptimizer& optimizer, double norm_type) {
  if (norm_type != 2)
    throw Error(ErrorCode::config, where + ".pp_post_validation",
                "post-validation passes a sum of squares along the pipeline, and clip_grad_norm.norm_type is "
                "not 2",
                "set norm_type: 2, or pp_post_validation: false");
  if (optimizer.can_undo()) return;
  const std::string name = optimizer.name();
  throw Error(ErrorCode::config, where + ".pp_post_validation",
              "post-validation takes updates back, and " +
                  (name.empty() ? "a host's optimizer" : "the optimizer '" + name + "'") + " cannot",
              name.empty() ? "set pp_post_validation: false, or let Step update with its AdamW"
                           : "set pp_post_validation: false, or optimizer._target_: torch.optim.AdamW");
}

void check_post_validation(const std::string& where, bool sum, const IOptimizer& optimizer) {
  const std::string key = where + ".pp_post_validation";
  check_can_undo(where, optimizer);
  if (sum) return;
  throw Error(
      ErrorCode::config, key,
      "post-validation passes a sum of squares along the pipeline, and this norm of gradients needs the "
      "largest gradient of all stages first",
      "use the 2-norm of fp32 gradients, or set pp_post_validation: false");
}

Total::Total(double mine, Communicator* group) : value_(at::zeros({1}, at::kDouble).fill_(mine)) {
  start(group);
}

Total::Total(double first, double second, Communicator* group) : value_(at::zeros({2}, at::kDouble)) {
  value_.mutable_data_ptr<double>()[0] = first;
  value_.mutable_data_ptr<double>()[1] = second;
  start(group);
}

Total::Total(at::Tensor mine, Communicator* group) : value_(std::move(mine)) {
  start(group);
}

at::Tensor Total::get() {
  if (work_) work_->wait();
  work_.reset();
  return value_;
}

void Total::start(Communicator* group) {
  if (group != nullptr) work_ = group->all_reduce(value_);
}

}  // namespace heddle::train
