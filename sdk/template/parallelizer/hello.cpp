// Tensor parallelism of the feed-forward layers (Megatron, Shoeybi et al. 2019): the ranks of the axis tp
// split the rows of gate_proj and up_proj and the columns of down_proj. All other parameters stay whole on
// each rank.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"

namespace hello_plugin {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor summed(const at::Tensor& tensor, heddle::Communicator& group) {
  at::Tensor sum = tensor.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum)->wait();
  return sum;
}

heddle::Communicator& group_of(AutogradContext* context) {
  return *reinterpret_cast<heddle::Communicator*>(context->saved_data["group"].toInt());
}

// Every rank has the whole input, so the backward sums the gradients over ranks.
struct Spread : torch::autograd::Function<Spread> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t group) {
    context->saved_data["group"] = group;
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {summed(gradients[0], group_of(context)), at::Tensor()};
  }
};

// Every rank has a term of a sum. The gradient of each term is the gradient of the sum.
struct Sum : torch::autograd::Function<Sum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t group) {
    context->saved_data["group"] = group;
    return summed(x, group_of(context));
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

struct Config {};

class Hello : public heddle::IParallelizer {
 public:
  explicit Hello(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"tp"};
    return needs;
  }

  void check(heddle::Units& units, const heddle::Sizes& /*sizes*/) override {
    bool any = false;
    visit(units, [&](const std::string&, heddle::Linear&, bool) { any = true; });
    if (!any)
      throw heddle::Error(heddle::ErrorCode::config, "distributed.tp_size",
                          "this model has no gate_proj, up_proj and down_proj to split",
                          "set tp_size: 1, or use another parallelizer");
  }

  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& mesh) override {
    std::vector<heddle::Placed> placed;
    heddle::Communicator& group = mesh.group("tp");
    const int64_t handle = reinterpret_cast<int64_t>(&group);
    visit(units, [&](const std::string& path, heddle::Linear& layer, bool columns) {
      for (heddle::ParameterSlot& slot : layer.slots()) {
        const int64_t dim = columns ? 1 : 0;
        if (slot.tensor->dim() <= dim) continue;  // down_proj's bias stays whole
        placed.push_back(cut(slot, path + "." + slot.name, dim, group));
      }
      if (columns)
        layer.output.add([handle](at::Tensor y) { return Sum::apply(y, handle); });
      else
        layer.input.add([handle](at::Tensor x) { return Spread::apply(x, handle); });
    });
    return placed;
  }

 private:
  // Calls `call` with each layer to split, and whether its columns are split.
  template <class Call>
  static void visit(heddle::Units& units, Call&& call) {
    heddle::model::each<heddle::Linear>(units, [&](const std::string& path, heddle::Linear& layer) {
      const bool columns = path.ends_with(".down_proj");
      if (columns || path.ends_with(".gate_proj") || path.ends_with(".up_proj")) call(path, layer, columns);
    });
  }

  // Points the slot to this rank's part along `dim`. Parts may be uneven.
  static heddle::Placed cut(heddle::ParameterSlot& slot, const std::string& name, int64_t dim,
                            heddle::Communicator& group) {
    const int64_t whole = slot.tensor->size(dim), begin = whole * group.rank() / group.size(),
                  end = whole * (group.rank() + 1) / group.size();
    slot.point(slot.tensor->detach().narrow(dim, begin, end - begin).clone(at::MemoryFormat::Contiguous));
    return {name, "tp", dim, begin, whole};
  }
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "parallelizer hello") {
  plugin.parallelizer<hello_plugin::Hello>("hello", heddle::ConfigSchema<hello_plugin::Config>());
}
