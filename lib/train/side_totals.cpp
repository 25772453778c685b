// Selects the ranks whose parts count, and turns sums into reported values.
#include "lib/train/side_totals.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

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

// The axes along which ranks have equal values.
std::vector<Axis> copied_axes(const DeviceMesh& mesh, const std::vector<std::string>& names) {
  std::vector<Axis> out;
  for (const Axis& axis : mesh.axes())
    if (axis.size > 1 && axis.name != kPipelineAxis && !is_covered(mesh, axis, names)) out.push_back(axis);
  return out;
}

// Whether this rank is the first along every axis whose ranks have equal values.
bool is_counted(const DeviceMesh& mesh, const std::vector<std::string>& names) {
  const std::vector<Axis> copied = copied_axes(mesh, names);
  return std::all_of(copied.begin(), copied.end(),
                     [&](const Axis& axis) { return mesh.rank(axis.name) == 0; });
}

// Ranks compute the same value with sums in other orders; one that truly differs differs by more.
constexpr double kSameValue = 1e-4;

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
    Counted& counted = counts_.emplace_back();
    counted.mine = is_counted(mesh, entry.spec.axes);
    if (entry.spec.combine == Combine::max) continue;  // every rank's counts
    for (const Axis& axis : copied_axes(mesh, entry.spec.axes)) {
      counted.copies *= axis.size;
      counted.axes += (counted.axes.empty() ? "" : ", ") + axis.name;
    }
    counted.checked = numbers_;
    if (counted.copies > 1) numbers_ += 2 * number_count(entry.spec);
  }
}

int64_t SideTotals::number_count(const SideSpec& spec) {
  return spec.size + (spec.combine == Combine::mean ? 1 : 0);
}

// All copies together, divided by their number, give what the first ones give; and the size of these numbers.
void SideTotals::add_checks(const at::Tensor& sums) const {
  int64_t at = 1 + layout_->sums();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i].copies == 1) continue;
    const SideLayout::Entry& entry = layout_->entries()[i];
    const int64_t numbers = number_count(entry.spec);
    const at::Tensor mine = sums.narrow(0, 1 + entry.begin, numbers) / counts_[i].copies;
    sums.narrow(0, at, numbers).copy_(mine);
    sums.narrow(0, at + numbers, numbers).copy_(at::maximum(mine, mine.neg()));  // abs() has no meta
    at += 2 * numbers;
  }
}

void SideTotals::check(const at::Tensor& sums) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i].copies == 1) continue;
    const SideLayout::Entry& entry = layout_->entries()[i];
    const int64_t numbers = number_count(entry.spec), at = 1 + layout_->sums() + counts_[i].checked;
    const at::Tensor first = sums.narrow(0, 1 + entry.begin, numbers), all = sums.narrow(0, at, numbers);
    const at::Tensor differ = (first - all).abs().gt(sums.narrow(0, at + numbers, numbers) * kSameValue);
    if (!differ.any().item<bool>()) continue;
    throw Error(ErrorCode::plugin_failed, "side output '" + entry.spec.name + "'",
                "ranks along " + counts_[i].axes +
                    " added different values, and by its axes they have the same one, which counts once",
                "name in its axes those along which ranks hold different parts, for instance dp_cp");
  }
}

void SideTotals::start(const at::Tensor& loss, const SideOutputs& mine) {
  sums_ = at::cat({loss, mine.sums(), at::zeros({numbers_}, loss.options())});
  maxima_ = mine.maxima();
  if (ranks_ == nullptr) return;
  add_checks(sums_);
  if (!loss_counts_) sums_.narrow(0, 0, 1).zero_();
  for (size_t i = 0; i < counts_.size(); ++i) {
    const SideLayout::Entry& entry = layout_->entries()[i];
    if (counts_[i].mine || entry.spec.combine == Combine::max) continue;
    sums_.narrow(0, 1 + entry.begin, number_count(entry.spec)).zero_();
  }
  summing_ = ranks_->all_reduce(sums_);
  if (layout_->maxima() > 0) finding_ = ranks_->all_reduce(maxima_, Reduce::max);
}

SideValues SideTotals::finish(const Counts& counts, at::Tensor& loss) {
  for (auto* work : {&summing_, &finding_})
    if (*work) std::exchange(*work, nullptr)->wait();
  if (numbers_ > 0 && !sums_.is_meta() && (sums_.is_cpu() || !std::exchange(checked_, true))) check(sums_);
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
