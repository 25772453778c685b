// Which ranks' parts count, and from sums to reported values.
#include "lib/train/side_totals.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::train {
namespace {

bool holds_all(const std::vector<int>& some, const std::vector<int>& all) {
  return std::all_of(some.begin(), some.end(),
                     [&](int rank) { return std::find(all.begin(), all.end(), rank) != all.end(); });
}

// A name may stand for several axes of the mesh ("dp_cp"): those whose ranks are all among its own.
bool is_covered(const DeviceMesh& mesh, const Axis& axis, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return mesh.size(name) > 1 && holds_all(mesh.ranks(axis.name), mesh.ranks(name));
  });
}

void check_axes(const DeviceMesh& mesh, const SideSpec& spec) {
  const auto refuse = [&](const std::string& fault) {
    throw Error(ErrorCode::mesh, "side output '" + spec.name + "'", fault,
                "name the axes along which ranks hold different parts of it, for instance dp_cp");
  };
  for (const std::string& name : spec.axes) {
    int size = 0, covered = 1;
    try {
      size = mesh.size(name);
    } catch (const Error& error) {
      refuse(error.message());
    }
    for (const Axis& axis : mesh.axes())
      if (axis.size > 1 && is_covered(mesh, axis, {name})) covered *= axis.size;
    if (covered != size)
      refuse("'" + name + "' is not an axis of the mesh, and does not consist of whole axes either");
  }
}

// Whether this rank is the first along every axis whose ranks have equal values.
bool is_counted(const DeviceMesh& mesh, const std::vector<std::string>& names) {
  for (const Axis& axis : mesh.axes())
    if (axis.size > 1 && axis.name != kPipelineAxis && mesh.rank(axis.name) != 0 &&
        !is_covered(mesh, axis, names))
      return false;
  return true;
}

double divisor_of(const SideSpec& spec, const SideTotals::Counts& counts) {
  if (!spec.is_loss || spec.divisor == LossDivisor::one) return 1;
  return std::max(spec.divisor == LossDivisor::label_tokens ? counts.label_tokens : counts.microbatches, 1.0);
}

}  // namespace

SideTotals::SideTotals(std::shared_ptr<const SideLayout> layout, const DeviceMesh& mesh)
    : layout_(std::move(layout)),
      ranks_(mesh.size("world") > 1 ? &mesh.group("world") : nullptr),
      loss_counts_(is_counted(mesh, {"dp_cp"})) {
  for (const SideLayout::Entry& entry : layout_->entries()) {
    check_axes(mesh, entry.spec);
    counts_.push_back(is_counted(mesh, entry.spec.axes));
  }
}

void SideTotals::start(const at::Tensor& loss, const SideOutputs& mine) {
  sums_ = at::cat({loss, mine.sums()});
  maxima_ = mine.maxima();
  if (ranks_ == nullptr) return;
  if (!loss_counts_) sums_.narrow(0, 0, 1).zero_();
  for (size_t i = 0; i < counts_.size(); ++i) {
    const SideLayout::Entry& entry = layout_->entries()[i];
    if (counts_[i] || entry.spec.combine == Combine::max) continue;
    sums_.narrow(0, 1 + entry.begin, entry.spec.size + (entry.spec.combine == Combine::mean ? 1 : 0)).zero_();
  }
  summing_ = ranks_->all_reduce(sums_);
  if (layout_->maxima() > 0) finding_ = ranks_->all_reduce(maxima_, Reduce::max);
}

SideValues SideTotals::finish(const Counts& counts, at::Tensor& loss) {
  for (auto* work : {&summing_, &finding_})
    if (*work) std::exchange(*work, nullptr)->wait();
  loss = sums_.narrow(0, 0, 1);
  const at::Tensor values = at::empty({layout_->reported()}, sums_.options());
  for (const SideLayout::Entry& entry : layout_->entries()) {
    const SideSpec& spec = entry.spec;
    const at::Tensor value = values.narrow(0, entry.report, spec.size);
    if (spec.combine == Combine::max) {
      const at::Tensor most = maxima_.narrow(0, entry.begin, spec.size);
      value.copy_(most.masked_fill(most.eq(-std::numeric_limits<double>::infinity()),
                                   std::numeric_limits<double>::quiet_NaN()));
      continue;
    }
    value.copy_(sums_.narrow(0, 1 + entry.begin, spec.size));
    if (spec.combine == Combine::mean)
      value.div_(sums_.narrow(0, 1 + entry.begin + spec.size, 1));
    else
      value.div_(divisor_of(spec, counts));
  }
  return {layout_, values};
}

}  // namespace heddle::train
