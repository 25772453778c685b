// The indices of this rank's stages, and the scope in which their parameters are whole.
#include "heddle/parallel/stages.h"

#include <ATen/ops/aminmax.h>

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/mesh/dry.h"

namespace heddle {

Stages::Stages(Pipeline pipeline, int rank) : pipeline_(std::move(pipeline)), rank_(rank), indices_() {
  for (int stage = 0; stage < pipeline_.stages(); ++stage)
    if (pipeline_.rank_of_stage[stage] == rank_) indices_.push_back(stage);
}

std::vector<Shard*> Stages::shards() {
  std::vector<Shard*> all;
  for (const auto& stage : stages_)
    for (Shard& shard : stage->owned()) all.push_back(&shard);
  return all;
}

Stages::Scheduled::Scheduled(const Stages& stages) : running_(stages.running_) {
  ++*running_;
}

Stages::Scheduled::~Scheduled() {
  --*running_;
}

namespace {

// A sampler would use parts as if they were whole parameters.
void check_whole(const Stages::Whole& expected, const std::vector<WholeParameter>& given) {
  const auto refuse = [&expected](const std::string& fault) {
    throw Error(
        ErrorCode::plugin_failed, expected.where,
        "the strategy '" + expected.strategy + "' breaks a rule of ParallelStage::hold_whole(): " + fault,
        "override hold_whole() and gather there what the data-parallel ranks hold; its default returns the "
        "owned shards");
  };
  std::set<std::string> seen;
  for (const WholeParameter& parameter : given) {
    const auto found = expected.sizes.find(parameter.name);
    if (found == expected.sizes.end()) refuse("'" + parameter.name + "' is not a parameter of its units");
    if (parameter.tensor.sizes() != at::IntArrayRef(found->second)) {
      std::ostringstream sizes;
      sizes << parameter.tensor.sizes() << " of '" << parameter.name << "', which is "
            << at::IntArrayRef(found->second);
      refuse("it gives a part " + sizes.str());
    }
    if (!seen.insert(parameter.name).second) refuse("it gives '" + parameter.name + "' twice");
  }
  for (const auto& [name, sizes] : expected.sizes)
    if (seen.count(name) == 0) refuse("it does not give '" + name + "'");
}

using Versions = std::array<int64_t, kBatchMembers.size()>;

constexpr const char* kBatchForm =
    "tokens, labels, positions and draws are int64 [batch, sequence], padding is bool [batch, sequence], "
    "documents is int32 [documents + 1]";

// The rules of batch.h: dtypes, equal sizes, ascending documents.
void check_members(const Batch& batch, const std::function<void(std::string, std::string)>& refuse) {
  if (!batch.tokens.defined()) refuse("left the batch without tokens", kBatchForm);
  for (const auto& [name, tensor] :
       {std::pair("tokens", &batch.tokens), std::pair("labels", &batch.labels),
        std::pair("positions", &batch.positions), std::pair("draws", &batch.draws)}) {
    if (!tensor->defined()) continue;
    if (tensor->scalar_type() != at::kLong)
      refuse("gave the batch's " + std::string(name) + " the dtype " + c10::toString(tensor->scalar_type()) +
                 ", which is int64 (Long)",
             kBatchForm);
    if (tensor->sizes() == batch.tokens.sizes()) continue;
    std::ostringstream sizes;
    sizes << tensor->sizes() << ", and its tokens are " << batch.tokens.sizes();
    refuse("gave the batch's " + std::string(name) + " the sizes " + sizes.str(), kBatchForm);
  }
  if (!batch.documents.defined() || batch.documents.is_meta()) return;
  try {
    check_documents(batch);
  } catch (const Error& error) {
    refuse("left documents that break their rule: " + error.message(), kBatchForm);
  }
}

// The first of them that is none of 0 .. count - 1. Reads them, so they are on the host.
std::optional<int64_t> token_outside(const at::Tensor& tokens, int64_t count) {
  if (!tokens.is_cpu() || tokens.numel() == 0) return std::nullopt;
  const auto [least, most] = at::aminmax(tokens);
  if (least.item<int64_t>() < 0) return least.item<int64_t>();
  if (most.item<int64_t>() >= count) return most.item<int64_t>();
  return std::nullopt;
}

// The look-up would say so too, and blame the data. Batches on a device are not read: that would wait for it.
void check_tokens(const Batch& before, const Batch& after, int64_t count,
                  const std::function<void(std::string, std::string)>& refuse) {
  if (count == 0 || after.tokens.is_same(before.tokens)) return;
  const std::optional<int64_t> token = token_outside(after.tokens, count);
  if (!token || (before.tokens.defined() && token_outside(before.tokens, count))) return;
  refuse("gave the batch the token " + std::to_string(*token) + ", and the model's embedding has " +
             std::to_string(count) + " rows",
         "give tokens of the vocabulary, as the batch has them");
}

void check_transformed(const IParallelizer& parallelizer, const Batch& before, const Versions& versions,
                       const Batch& after, int64_t most_tokens) {
  const auto refuse = [&](const std::string& fault, const std::string& hint) {
    throw Error(ErrorCode::plugin_failed, "IParallelizer::transform",
                "'" + parallelizer.name() + "' " + fault, hint);
  };
  for (size_t i = 0; i < kBatchMembers.size(); ++i) {
    const BatchMember& member = kBatchMembers[i];
    const at::Tensor &old = before.*member.tensor, &now = after.*member.tensor;
    if (old.defined() && static_cast<int64_t>(old._version()) != versions[i])
      refuse("changed the batch's " + std::string(member.name) + " in place, which belong to the data",
             "give the batch a new tensor");
    if (member.cut != RowCut::rows || !now.defined()) continue;
    const int64_t rows = before.tokens.defined() ? before.tokens.size(0) : now.size(0);
    if (now.dim() == 0 || now.size(0) != rows)
      refuse("left " + std::to_string(now.dim() == 0 ? 0 : now.size(0)) + " rows of the batch's " +
                 std::string(member.name) + ", which has " + std::to_string(rows),
             "keep the rows of a batch: change them, or cut along the sequence");
  }
  check_members(after, refuse);
  check_tokens(before, after, most_tokens, refuse);
}

// Checks a batch of a host or a data set. Foreign models may use other dtypes and shapes.
void check_given(const Batch& batch) {
  if (!batch.tokens.defined() || batch.tokens.dim() != 2) return;
  if (batch.documents.is_cpu()) check_documents(batch);  // one on a device is not read: that would wait
  for (const BatchMember& member : kBatchMembers) {
    const at::Tensor& tensor = batch.*member.tensor;
    if (member.cut != RowCut::rows || !tensor.defined()) continue;
    const std::string name = "Batch::" + std::string(member.name);
    if (at::isIntegralType(tensor.scalar_type(), false) && tensor.scalar_type() != at::kLong)
      throw Error(ErrorCode::input, "batch",
                  name + " has the dtype " + c10::toString(tensor.scalar_type()) + ", not int64 (Long)",
                  kBatchForm);
    if (tensor.dim() != 2 || tensor.sizes() == batch.tokens.sizes()) continue;
    std::ostringstream sizes;
    sizes << name << " is of the sizes " << tensor.sizes() << ", and the tokens are " << batch.tokens.sizes();
    throw Error(ErrorCode::input, "batch", sizes.str(), kBatchForm);
  }
}

}  // namespace

void Stages::transform(Batch& batch, const DeviceMesh& mesh) const {
  check_given(batch);
  for (IParallelizer* parallelizer : attached_.transforms) {
    const Batch before = batch;
    Versions versions{};
    for (size_t i = 0; i < versions.size(); ++i)
      if (const at::Tensor& tensor = before.*kBatchMembers[i].tensor; tensor.defined())
        versions[i] = static_cast<int64_t>(tensor._version());
    parallelizer->transform(batch, mesh);
    check_transformed(*parallelizer, before, versions, batch, attached_.most_tokens);
  }
}

void Stages::attach_elsewhere(DryRank& world, std::vector<std::unique_ptr<ParallelStage>> stages) {
  world_ = &world;
  elsewhere_ = std::move(stages);
}

Tensors Stages::forward_elsewhere(int stage, Tensors inputs, const Batch& microbatch) const {
  const DryRendezvous::Unlisted unlisted(*world_);
  const SideOutputs::Again uncounted;
  return elsewhere_.at(static_cast<size_t>(stage))->forward(std::move(inputs), microbatch);
}

Unsharded::Unsharded(Stages& stages) : stages_(stages) {
  size_t held = 0;
  try {
    std::set<std::string> earlier;  // names of stages before: a tied parameter is listed once
    for (; held < stages_.size(); ++held) {
      const size_t before = parameters_.size();
      for (WholeParameter& parameter : stages_[held]->hold_whole())
        if (earlier.count(parameter.name) == 0) parameters_.push_back(std::move(parameter));
      for (size_t i = before; i < parameters_.size(); ++i) earlier.insert(parameters_[i].name);
    }
    if (stages_.whole()) check_whole(*stages_.whole(), parameters_);
  } catch (...) {
    while (held-- > 0) stages_[held]->release_whole();
    throw;
  }
}

Unsharded::~Unsharded() {
  for (size_t held = 0; held < stages_.size(); ++held) stages_[held]->release_whole();
}

}  // namespace heddle
