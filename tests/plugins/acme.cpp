// Rows of weights over the ranks of acme: gathered in the forward, with gradients summed over acme in the
// backward.
#include "plugins/acme.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace heddle::tests {
namespace {

struct Rows {
  int64_t begin, count, most;
};

// The first ranks hold one row more.
Rows rows_of(int64_t rows, int ranks, int rank) {
  const int64_t each = rows / ranks, more = rows % ranks;
  return {rank * each + std::min<int64_t>(rank, more), each + (rank < more), each + (more > 0)};
}

class GatherRows : public torch::autograd::Function<GatherRows> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& part, int64_t rows,
                            int64_t group) {
    auto& ranks = *reinterpret_cast<Communicator*>(group);
    context->saved_data["rows"] = rows;
    context->saved_data["group"] = group;
    const Rows mine = rows_of(rows, ranks.size(), ranks.rank());
    const at::Tensor sent = at::zeros({mine.most, part.size(1)}, part.options());
    sent.narrow(0, 0, mine.count).copy_(part);
    const at::Tensor all = at::zeros({ranks.size() * mine.most, part.size(1)}, part.options());
    ranks.all_gather(all, sent)->wait();
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < ranks.size(); ++rank)
      parts.push_back(all.narrow(0, rank * mine.most, rows_of(rows, ranks.size(), rank).count));
    return at::cat(parts);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto& ranks = *reinterpret_cast<Communicator*>(context->saved_data["group"].toInt());
    const Rows mine = rows_of(context->saved_data["rows"].toInt(), ranks.size(), ranks.rank());
    const at::Tensor sum = gradients[0].clone();
    ranks.all_reduce(sum)->wait();
    return {sum.narrow(0, mine.begin, mine.count).clone(), at::Tensor(), at::Tensor()};
  }
};

class AcmeSplit : public IParallelizer {
 public:
  explicit AcmeSplit(Acme acme) : acme_(std::move(acme)) {}

  Needs needs() const override {
    Needs needs;
    needs.axes = {"acme"};
    AxisInfo axis;
    axis.name = "acme";
    axis.key = "acme_size";
    axis.parallelism = "acme parallelism";
    axis.view = "acme";
    needs.new_axes = {axis};
    needs.new_views = {{"acme", {"dp", "cp"}, "acme_shard"}};
    return needs;
  }

  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override {
    std::vector<Placed> placed;
    Communicator& ranks = mesh.group("acme");
    for (auto& unit : units) {
      auto& toy = static_cast<ToyUnit&>(*unit);
      if (toy.own.size() < 2) continue;  // not a layer
      ParameterSlot slot = toy.parameters().front();
      const int64_t whole = slot.tensor->size(0);
      const Rows mine = rows_of(whole, ranks.size(), ranks.rank());
      slot.point(slot.tensor->detach().narrow(0, mine.begin, mine.count).clone());
      toy.gather = [whole, &ranks](const at::Tensor& part) {
        return GatherRows::apply(part, whole, reinterpret_cast<int64_t>(&ranks));
      };
      placed.push_back({slot.name, acme_.axis, 0, mine.begin, whole});
      if (acme_.also_dp_shard) placed.push_back({slot.name, "dp_shard", 1, 0, slot.tensor->size(1)});
    }
    return placed;
  }

 private:
  Acme acme_;
};

}  // namespace

std::unique_ptr<IParallelizer> make_acme(Acme acme) {
  return std::make_unique<AcmeSplit>(std::move(acme));
}

AxisTable acme_table() {
  AxisTable table;
  const Needs needs = make_acme()->needs();
  table.add(needs.new_axes, needs.new_views, "the parallelizer 'acme'");
  return table;
}

Training over_acme(Training run, int acme, Acme how) {
  int ranks = 1;
  for (const Axis& axis : run.axes) ranks *= axis.size;
  run.table = acme_table();
  if (acme == 1) return run;  // the engine calls a parallelizer only for an axis above 1
  run.views = {{"acme", {"dp", "cp"}, {{"acme_shard", ranks / acme}, {"acme", acme}}}};
  run.own_parallelizers = {[how] { return make_acme(how); }};
  return run;
}

}  // namespace heddle::tests
