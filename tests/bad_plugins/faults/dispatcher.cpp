// Expert parallelism over ep by gathering all tokens: every rank computes its experts for all tokens, and the
// outputs are summed. HEDDLE_FAULT selects a fault; each fault violates one sentence of heddle/nn/experts.h
// or parallelizer.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fault.h"
#include "heddle/nn/experts.h"
#include "heddle/sdk.h"

namespace {

using faults::is;
using heddle::Communicator;
using heddle::Experts;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> with_rows(const at::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = rows;
  return sizes;
}

at::Tensor gathered(const at::Tensor& mine, Communicator& group) {
  const at::Tensor all = at::empty(with_rows(mine, mine.size(0) * group.size()), mine.options());
  group.all_gather(all, mine.contiguous())->wait();
  return all;
}

at::Tensor scattered(const at::Tensor& all, Communicator& group) {
  const at::Tensor mine = at::empty(with_rows(all, all.size(0) / group.size()), all.options());
  if (is("no_sum")) return all.narrow(0, group.rank() * mine.size(0), mine.size(0)).clone();
  group
      .reduce_scatter(mine, all.contiguous(), is("averages") ? heddle::Reduce::average : heddle::Reduce::sum)
      ->wait();
  return mine;
}

struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& mine, int64_t group) {
    context->saved_data["group"] = group;
    return gathered(mine, *reinterpret_cast<Communicator*>(group));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& group = *reinterpret_cast<Communicator*>(context->saved_data["group"].toInt());
    if (!is("no_sum_in_backward")) return {scattered(gradients[0], group), at::Tensor()};
    const int64_t rows = gradients[0].size(0) / group.size();
    return {gradients[0].narrow(0, rows * group.rank(), rows), at::Tensor()};
  }
};

struct Scatter : torch::autograd::Function<Scatter> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& all, int64_t group) {
    context->saved_data["group"] = group;
    return scattered(all, *reinterpret_cast<Communicator*>(group));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gathered(gradients[0], *reinterpret_cast<Communicator*>(context->saved_data["group"].toInt())),
            at::Tensor()};
  }
};

at::Tensor result_of(at::Tensor y, const at::Tensor& x) {
  if (is("loses_a_row")) return y.narrow(0, 0, y.size(0) - 1);
  if (is("returns_one_row")) return y.narrow(0, 0, 1);
  if (is("returns_another_width")) return y.narrow(1, 0, y.size(1) - 1);
  if (is("turns_rows")) return y.flip(0);
  if (is("other_dtype")) return y.to(at::kDouble);
  if (is("adds_its_input")) return y + x * 0.01;
  return y;
}

void link(Experts& experts, Communicator& group) {
  const auto handle = reinterpret_cast<int64_t>(&group);
  const int64_t held = experts.shape().experts / group.size(), first = held * group.rank();
  experts.instead.add(Experts::Instead::around(
      "faulty_dispatcher", 0,
      [handle, held, first](const at::Tensor& x, const heddle::model::Routing& chosen, Experts& of,
                            const heddle::Batch& batch, heddle::model::Meanwhile& meanwhile,
                            const auto& local) {
        Communicator& ranks = *reinterpret_cast<Communicator*>(handle);
        at::Tensor weights = chosen.weights;
        if (is("weights_have_no_gradient")) weights = weights.detach();
        if (is("weights_ignored")) weights = weights * 0 + 0.5;
        at::Tensor own = gathered(chosen.experts, ranks) - first;
        const at::Tensor elsewhere = own.lt(0).logical_or(own.ge(held));
        if (is("takes_the_next_expert")) own = (own + 1).remainder(held);
        own = own.masked_fill(elsewhere, -1);
        if (is("drops_choices")) own.narrow(0, 0, own.size(0) / 3).fill_(-1);
        const at::Tensor all =
            local(Gather::apply(x, handle), {own, Gather::apply(weights, handle)}, of, batch, meanwhile);
        return result_of(Scatter::apply(all, handle), x);
      }));
}

struct Config {};

class Faulty : public heddle::IParallelizer {
 public:
  explicit Faulty(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"ep"};
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& mesh) override {
    std::vector<heddle::Placed> placed;
    if (is("links_nothing")) return placed;
    Communicator& group = mesh.group("ep");
    each(units, [&](const std::string&, Experts& experts) { link(experts, group); });
    for (const auto& unit : units)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (slot.name.find("experts") == slot.name.npos) continue;
        const int64_t whole = slot.tensor->size(0), part = whole / group.size(), begin = part * group.rank();
        slot.point(slot.tensor->detach().narrow(0, begin, part).clone(at::MemoryFormat::Contiguous));
        if (!is("not_placed")) placed.push_back({slot.name, "ep", 0, begin, whole});
      }
    return placed;
  }

 private:
  template <class Call>
  static void each(heddle::Units& units, const Call& call) {
    for (const auto& unit : units)
      if (unit->module() != nullptr)
        unit->module()->visit(std::string(unit->name()),
                              [&](const std::string& path, heddle::Module& module) {
                                if (auto* experts = dynamic_cast<Experts*>(&module)) call(path, *experts);
                              });
  }
};

}  // namespace

HEDDLE_PLUGIN("faulty_dispatcher", "0.1.0", "parallelizer faulty_dispatcher") {
  plugin.parallelizer<Faulty>("faulty_dispatcher", heddle::ConfigSchema<Config>());
}
