// Split of the weights, and padding of batches.
#include "parallelizer.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <string>
#include <utility>

#include "gather.h"
#include "heddle/base/error.h"
#include "heddle/nn/linear.h"

namespace acme {
namespace {

constexpr int64_t kMultiple = 8;

bool is_split(const std::string& name) {
  return name.ends_with("up_proj.weight") || name.ends_with("down_proj.weight");
}

// Returns the layers of the unit whose weights are split, with the slots of their weights.
std::vector<std::pair<heddle::ParameterSlot, heddle::Linear*>> layers_of(heddle::Unit& unit) {
  std::vector<std::pair<heddle::ParameterSlot, heddle::Linear*>> out;
  if (unit.module() == nullptr) return out;
  for (const heddle::ParameterSlot& slot : unit.parameters()) {
    if (!is_split(slot.name)) continue;
    unit.module()->visit("", [&](const std::string&, heddle::Module& module) {
      auto* linear = dynamic_cast<heddle::Linear*>(&module);
      if (linear != nullptr && &linear->weight == slot.tensor) out.emplace_back(slot, linear);
    });
  }
  return out;
}

heddle::Linear::Instead::LinkPointer gathered_product(int64_t rows, heddle::Communicator& ranks) {
  return heddle::Linear::Instead::in_place("acme", [rows, &ranks](std::span<heddle::Linear* const> layers,
                                                                  const at::Tensor& x, const heddle::Batch&) {
    heddle::model::FewTensors out;
    for (const heddle::Linear* layer : layers)
      out.push_back(heddle::model::linear(x, gather_rows(layer->weight, rows, ranks), layer->bias));
    return out;
  });
}

// Returns the document offsets after each row of `length` tokens is padded with `more` tokens, which are a
// separate document.
at::Tensor padded_documents(const at::Tensor& documents, int64_t length, int64_t more) {
  std::vector<int> out;
  for (int64_t i = 0; i < documents.numel(); ++i) {
    const int64_t begin = documents.const_data_ptr<int32_t>()[i], row = begin / length;
    if (begin > 0 && begin % length == 0) out.push_back(static_cast<int>(begin + (row - 1) * more));
    out.push_back(static_cast<int>(begin + row * more));
  }
  return at::tensor(out, at::kInt);
}

}  // namespace

heddle::Needs Acme::needs() const {
  heddle::AxisInfo axis;
  axis.name = "acme";
  axis.key = "acme_size";
  axis.parallelism = "acme parallelism";
  axis.view = "acme";
  heddle::Needs needs;
  needs.axes = {"acme"};
  needs.new_axes = {axis};
  needs.new_views = {{"acme", {"dp", "cp"}, "acme_shard"}};
  return needs;
}

void Acme::check(heddle::Units& units, const heddle::Sizes&) {
  for (const auto& unit : units)
    if (!layers_of(*unit).empty()) return;
  throw heddle::Error(heddle::ErrorCode::config, "distributed.acme_size",
                      "the model has no layer named up_proj or down_proj, and acme splits no other",
                      "set acme_size: 1 for this model");
}

std::vector<heddle::Placed> Acme::apply(heddle::Units& units, const heddle::DeviceMesh& mesh) {
  heddle::Communicator& ranks = mesh.group("acme");
  std::vector<heddle::Placed> placed;
  for (const auto& unit : units)
    for (auto& [slot, linear] : layers_of(*unit)) {
      const int64_t whole = slot.tensor->size(0);
      const Rows mine = rows_of(whole, ranks.size(), ranks.rank());
      slot.point(slot.tensor->detach().narrow(0, mine.begin, mine.count).clone());
      linear->instead.add(gathered_product(whole, ranks));
      placed.push_back({slot.name, "acme", 0, mine.begin, whole});
    }
  return placed;
}

void Acme::transform(heddle::Batch& batch, const heddle::DeviceMesh&) {
  const int64_t length = batch.tokens.size(1), more = (kMultiple - length % kMultiple) % kMultiple;
  padded_.add(at::full({1}, static_cast<double>(more * batch.tokens.size(0))), batch);
  if (more == 0) return;
  batch.tokens = at::constant_pad_nd(batch.tokens, {0, more}, 0);
  if (batch.labels.defined())
    batch.labels = at::constant_pad_nd(batch.labels, {0, more}, heddle::Batch::kIgnore);
  if (batch.documents.defined()) batch.documents = padded_documents(batch.documents, length, more);
  if (batch.positions.defined()) batch.positions = at::constant_pad_nd(batch.positions, {0, more}, 0);
}

}  // namespace acme
