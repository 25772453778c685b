// Adds up side outputs; the autograd node of an auxiliary loss.
#include "heddle/model/side_outputs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"

namespace heddle {
namespace {

thread_local int forwards_again = 0;

constexpr std::string_view kPart = "_loss";

bool is_side_name(const std::string& name) {
  const size_t slash = name.find('/');
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  const bool grouped = slash != name.npos && slash > 0 && slash + 1 < name.size();
  return (grouped || (slash == name.npos && name.size() > kPart.size() && name.ends_with(kPart))) &&
         std::all_of(name.begin(), name.end(), allowed);
}

int64_t sums_in(const SideSpec& spec) {
  if (spec.combine == Combine::max) return 0;
  return spec.size + (spec.combine == Combine::mean ? 1 : 0);
}

}  // namespace

SideOutput::SideOutput(SideSpec spec) : spec_(std::move(spec)) {
  if (!is_side_name(spec_.name))
    throw Error(
        ErrorCode::input, "side output", "'" + spec_.name + "' is not a name of a loss or a metric",
        "write GROUP/NAME of letters, digits, '_', '-' and '.', for instance router/load, or NAME_loss of a "
        "part of the loss");
  if (spec_.size < 1)
    throw Error(ErrorCode::input, "side output '" + spec_.name + "'",
                "a size of " + std::to_string(spec_.size), "give it one element or more");
}

AuxiliaryLoss::AuxiliaryLoss(std::string name, LossDivisor divisor, std::vector<std::string> axes,
                             Shown shown)
    : SideOutput({std::move(name), true, divisor, Combine::sum, std::move(axes), 1, shown}) {}

Metric::Metric(std::string name, Combine combine, std::vector<std::string> axes, int64_t size, Shown shown)
    : SideOutput({std::move(name), false, LossDivisor::one, combine, std::move(axes), size, shown}) {}

void Metric::add(const at::Tensor& value, const Batch& batch, double weight) const {
  if (batch.side_outputs != nullptr) batch.side_outputs->add(*this, value, weight);
}

// Edges: x, the loss.
struct AuxiliaryLossNode final : model::LayerNode {
  AuxiliaryLossNode() : LayerNode("AuxiliaryLossBackward") {}
  const SideOutputs* all = nullptr;
  LossDivisor divisor = LossDivisor::one;
  std::vector<int64_t> sizes;
  at::TensorOptions options;

  model::Gradients backward(model::Gradients&& gradients) override {
    return {std::move(gradients[0]), at::full(sizes, all->divide_(divisor), options)};
  }
};

at::Tensor AuxiliaryLoss::add(const at::Tensor& x, const at::Tensor& loss, const Batch& batch) const {
  const std::string where = "auxiliary loss '" + spec().name + "'";
  if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point())
    throw Error(ErrorCode::input, where, "it is not a floating tensor of one element",
                "add this rank's part of the microbatch's loss, for instance a sum");
  SideOutputs* all = batch.side_outputs;
  if (all != nullptr) all->add(*this, loss, 1);
  if (!at::GradMode::is_enabled() || !loss.requires_grad()) return x;
  if (all == nullptr || !all->divide_)
    throw Error(ErrorCode::input, where, "nothing collects it, so its gradient would be lost",
                "train with heddle::Step, or set Batch::side_outputs in a loop of your own");
  auto node = model::make_node<AuxiliaryLossNode>(x, loss);
  node->all = all;
  node->divisor = spec().divisor;
  node->sizes = loss.sizes().vec();
  node->options = loss.options().requires_grad(false);
  at::Tensor same;
  {
    const model::BelowAutograd below;
    same = at::alias(x);
  }
  torch::autograd::set_history(same, node);
  return same;
}

void SideLayout::add(SideOutput& output) {
  const SideSpec& spec = output.spec();
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.spec.name == spec.name; });
  output.place_ = static_cast<int>(known - entries_.begin());
  if (known == entries_.end()) {
    entries_.push_back({spec, spec.combine == Combine::max ? maxima_ : sums_, reported_});
    sums_ += sums_in(spec);
    maxima_ += spec.combine == Combine::max ? spec.size : 0;
    reported_ += spec.size;
  } else if (!(known->spec == spec)) {
    throw Error(ErrorCode::plugin_conflict, "side output '" + spec.name + "'",
                "it is declared twice, with different kinds, divisors, axes, sizes or places to show it",
                "give one of the two another name");
  }
}

at::Tensor SideValues::find(const std::string& name) const {
  if (layout)
    for (const SideLayout::Entry& entry : layout->entries())
      if (entry.spec.name == name) return values.narrow(0, entry.report, entry.spec.size);
  return {};
}

SideOutputs::SideOutputs(std::shared_ptr<const SideLayout> layout, c10::Device device)
    : layout_(layout ? std::move(layout) : std::make_shared<const SideLayout>()), device_(device) {}

void SideOutputs::begin(Divide divide) {
  divide_ = std::move(divide);
  if (layout_->empty()) return;
  const auto options = at::TensorOptions(at::kDouble).device(device_);
  sums_ = at::zeros({layout_->sums()}, options);
  maxima_ = at::full({layout_->maxima()}, -std::numeric_limits<double>::infinity(), options);
}

void SideOutputs::add(const SideOutput& output, const at::Tensor& value, double weight) {
  if (forwards_again > 0) return;
  const SideSpec& spec = output.spec();
  const std::string where = "side output '" + spec.name + "'";
  const auto place = static_cast<size_t>(output.place_);
  if (output.place_ < 0 || place >= layout_->entries().size() ||
      layout_->entries()[place].spec.name != spec.name)
    throw Error(ErrorCode::input, where, "the run was built without it",
                "declare it: Module::add_side_output in the constructor, or IParallelizer::side_outputs");
  if (!value.defined() || value.numel() != spec.size)
    throw Error(ErrorCode::input, where,
                "a value of " + std::to_string(value.defined() ? value.numel() : 0) + " elements, and " +
                    std::to_string(spec.size) + " are declared",
                "declare the size of the value");
  const at::NoGradGuard no_gradients;
  const at::Tensor flat = value.detach().reshape({-1}).to(device_, at::kDouble);
  const int64_t begin = layout_->entries()[place].begin;
  if (spec.combine == Combine::max) {
    const at::Tensor most = maxima_.narrow(0, begin, spec.size);
    most.copy_(at::maximum(most, flat));
    return;
  }
  sums_.narrow(0, begin, spec.size).add_(flat, weight);
  if (spec.combine == Combine::mean) sums_.narrow(0, begin + spec.size, 1).add_(weight);
}

SideOutputs::Again::Again() {
  ++forwards_again;
}

SideOutputs::Again::~Again() {
  --forwards_again;
}

}  // namespace heddle
