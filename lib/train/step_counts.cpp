// Counts label tokens, and sums counts over ranks.
#include "lib/train/step_counts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"

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

Total::Total(at::Tensor mine, Communicator* group) : value_(std::move(mine)) {
  if (group != nullptr) work_ = group->all_reduce(value_);
}

at::Tensor Total::get() {
  if (work_) work_->wait();
  work_.reset();
  return value_;
}

namespace {

// Returns the numbers to sum over ranks. The squares show every rank whether all numbers of microbatches are
// equal.
at::Tensor numbers_of(const BatchCounts& counts, bool is_first) {
  const at::Tensor out = at::zeros({4}, at::kDouble);
  double* numbers = out.mutable_data_ptr<double>();
  const auto microbatches = static_cast<double>(counts.microbatches);
  numbers[0] = is_first ? static_cast<double>(counts.label_tokens) : 0;
  numbers[1] = is_first ? static_cast<double>(counts.with_text) : 0;
  numbers[2] = microbatches;
  numbers[3] = microbatches * microbatches;
  return out;
}

constexpr const char* kEqualCounts =
    "Give each rank the same number of batches, of the same number of rows, in each step: what "
    "next_batches() "
    "of the host or the data set of a plugin returns depends on the rank.";

// Collectives of a rank that runs alone in place of many (DryRendezvous) add nothing up: all counts are
// equal.
void refuse_counts(std::span<const std::string> counts, Rendezvous& rendezvous) {
  std::map<int64_t, std::vector<int>> ranks;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    ranks[std::stoll(counts[rank])].push_back(static_cast<int>(rank));
  if (ranks.size() == 1) return;
  std::vector<std::string> words;
  for (const auto& [count, members] : ranks)
    words.push_back(std::to_string(count) + " on " +
                    mesh::name_ranks(members, [&](int rank) { return rendezvous.host_name(rank); }));
  throw Error(ErrorCode::mesh, "train",
              "the ranks have different numbers of microbatches in this step: " + text::join(words),
              kEqualCounts);
}

}  // namespace

StepCounts::StepCounts(const BatchCounts& mine, Communicator* ranks, bool is_first)
    : mine_(mine), ranks_(ranks == nullptr ? 1 : ranks->size()), total_(numbers_of(mine, is_first), ranks) {}

void StepCounts::check_equal(Rendezvous& rendezvous) {
  if (ranks_ == 1 || std::exchange(is_checked_, true)) return;
  const double* sums = total_.get().const_data_ptr<double>();
  const auto mine = static_cast<double>(mine_.microbatches);
  if (sums[2] == ranks_ * mine && sums[3] == ranks_ * mine * mine) return;
  if (mine_.microbatches == 0)
    throw Error(ErrorCode::mesh, "train",
                "rank " + std::to_string(rendezvous.rank()) +
                    " has no microbatch in this step, and the other ranks have " +
                    std::to_string(static_cast<int64_t>(sums[2])) + " together",
                kEqualCounts);
  rendezvous.meet("microbatches", std::to_string(mine_.microbatches),
                  [&](std::span<const std::string> counts) {
                    refuse_counts(counts, rendezvous);
                    return std::vector<std::string>{""};
                  });
}

}  // namespace heddle::train
