// Tensor parallelism of the feed-forward layers. HEDDLE_FAULT selects a fault; each fault violates one
// sentence of heddle/parallel/parallelizer.h, shard.h, communicator.h or batch.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <deque>
#include <map>
#include <stdexcept>

#include "fault.h"
#include "heddle/model/module_unit.h"
#include "heddle/model/region.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"

namespace {

using faults::is;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor summed(const at::Tensor& tensor, heddle::Communicator& group) {
  at::Tensor sum = tensor.clone(at::MemoryFormat::Contiguous);
  if (is("skips_a_collective") && group.rank() == 1) return sum;
  if (is("sizes_differ") && group.rank() == 1) sum = sum.narrow(0, 0, sum.size(0) - 1).contiguous();
  if (is("sums_in_bf16")) sum = sum.to(at::kBFloat16);
  if (is("order_differs") && group.rank() == 1) {
    at::Tensor more = sum.narrow(0, 0, 1).clone();
    group.all_reduce(more)->wait();
  }
  auto work = group.all_reduce(sum, is("averages") ? heddle::Reduce::average : heddle::Reduce::sum);
  if (is("reads_before_wait")) {
    const at::Tensor early = sum.clone();
    work->wait();
    return early;
  }
  if (is("drops_a_work")) return sum;
  work->wait();
  if (is("sums_in_bf16")) return sum.to(tensor.scalar_type());
  if (is("sums_twice")) group.all_reduce(sum)->wait();
  return sum;
}

heddle::Communicator& group_of(AutogradContext* context) {
  return *reinterpret_cast<heddle::Communicator*>(context->saved_data["group"].toInt());
}

struct Spread : torch::autograd::Function<Spread> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t group) {
    context->saved_data["group"] = group;
    if (is("changes_a_kept_result")) return doubled_half(x, group_of(context));
    return x.view_as(x);
  }
  // Returns the mean of equal inputs, and doubles a result that a region keeps, so that a recomputation
  // doubles it again.
  static at::Tensor doubled_half(const at::Tensor& x, heddle::Communicator& group) {
    namespace model = heddle::model;
    return model::once(model::Operator::collective, [&] { return summed(x, group) * (0.5 / group.size()); })
        .mul_(2)
        .clone();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (is("no_sum_in_backward")) return {gradients[0], at::Tensor()};
    return {summed(gradients[0], group_of(context)), at::Tensor()};
  }
};

// Gathers the columns of all ranks.
struct GatherColumns : torch::autograd::Function<GatherColumns> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& mine, int64_t group) {
    context->saved_data["group"] = group;
    heddle::Communicator& ranks = group_of(context);
    const at::Tensor rows = mine.t().contiguous();
    const at::Tensor all = at::empty({rows.size(0) * ranks.size(), rows.size(1)}, rows.options());
    ranks.all_gather(all, rows)->wait();
    return all.t().contiguous();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    heddle::Communicator& ranks = group_of(context);
    const int64_t columns = gradients[0].size(1) / ranks.size();
    return {gradients[0].narrow(1, columns * ranks.rank(), columns), at::Tensor()};
  }
};

// `forwards`: address of the number of forwards of this layer.
struct Sum : torch::autograd::Function<Sum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t group, int64_t forwards) {
    context->saved_data["group"] = group;
    context->saved_data["forwards"] = forwards;
    context->saved_data["forward"] = ++*reinterpret_cast<int64_t*>(forwards);
    return is("no_sum_in_forward") ? x.clone() : summed(x, group_of(context));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const int64_t last = *reinterpret_cast<int64_t*>(context->saved_data["forwards"].toInt());
    const bool is_last = context->saved_data["forward"].toInt() == last;
    const bool scales = is("gradient_scaled") || (is("keeps_one_microbatch") && !is_last);
    return {scales ? gradients[0] * 0.5 : gradients[0], at::Tensor(), at::Tensor()};
  }
};

struct Config {};

class Faulty : public heddle::IParallelizer {
 public:
  explicit Faulty(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    if (is("throws_in_needs")) throw std::runtime_error("no axes");
    needs.axes = {is("axis_is_unknown") ? "tensor" : is("axis_without_key") ? "dp_shard" : "tp"};
    if (has_no_axis()) needs.axes.clear();
    return needs;
  }

  void check(heddle::Units&, const heddle::Sizes&) override {
    if (is("throws_in_check")) throw std::runtime_error("no rules");
  }

  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& mesh) override {
    if (is("throws_in_apply")) throw std::runtime_error("no plan");
    std::vector<heddle::Placed> placed;
    if (is("does_nothing") || has_no_axis()) return placed;
    if (is("acts_after_a_layer")) return act_after_layers(units), placed;
    if (is("needs_the_embedding") && units.front()->name() != "model.embed_tokens")
      throw std::runtime_error("no embedding");
    data_ranks_ = mesh.size("dp");
    heddle::Communicator& group = mesh.group("tp");
    for (const auto& unit : units)
      if (unit->module() != nullptr)
        unit->module()->visit(std::string(unit->name()), [&](const std::string& path,
                                                             heddle::Module& module) {
          auto* layer = dynamic_cast<heddle::Linear*>(&module);
          const bool columns = path.ends_with(".down_proj");
          if (layer == nullptr || !(columns || path.ends_with(".gate_proj") || path.ends_with(".up_proj")))
            return;
          cut(layer->slots().front(), path + ".weight", columns ? 1 : 0, group, placed);
          add_seams(*layer, columns, group);
        });
    if (begins_with("tables")) cut_tables(units, group, placed);
    if (is("places_an_unknown_parameter")) placed.push_back({"nowhere.weight", "tp", 0, 0, 1});
    if (is("places_on_a_wrong_axis"))
      for (heddle::Placed& one : placed) one.axis = "cpp";
    if (is("places_twice")) placed.push_back(placed.front());
    if (is("partial_that_is_whole"))
      placed.push_back({"model.norm.weight", "tp", 0, 0, 0, heddle::Placed::Kind::partial_gradient});
    return placed;
  }

  std::optional<int> transform_order() const override {
    if (transforms()) return 0;
    return std::nullopt;
  }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh& mesh) override {
    if (is("transform_throws")) throw std::runtime_error("no table");
    if (is("transform_in_place")) batch.tokens.fill_(1);
    if (is("transform_loses_rows")) batch.tokens = batch.tokens.narrow(0, 0, batch.tokens.size(0) - 1);
    if (is("transform_dtype")) batch.tokens = batch.tokens.to(at::kInt);
    if (is("transform_length")) batch.tokens = batch.tokens.narrow(1, 0, batch.tokens.size(1) - 1);
    if (is("transform_token")) batch.tokens = at::full_like(batch.tokens, 1000000);
    if (is("transform_by_rank")) batch.labels = batch.labels.clamp_max(11 - mesh.rank("tp"));
    if (is("transform_throws_in_evaluation") && ++calls_ == 2) throw std::runtime_error("no second table");
    if (is("transform_counts")) batch.labels = batch.labels.remainder(3 + ++calls_ % 5);
    if (is("batch_by_rank")) batch.labels = batch.labels.clamp_max(11 - mesh.rank("dp"));
    if (is("batch_by_stage")) batch.labels = batch.labels.clamp_max(11 - mesh.rank("pp"));
    if (is("batch_skips_a_document") && batch.documents.defined()) skip_first_document(batch);
    if (is("batch_counts")) batch.labels = batch.labels.remainder(3 + ++calls_ % 5);
    if (is("metric_counts_ranks")) metric_.add(at::full({1}, 1.0), batch);
    if (is("metric_is_of_one_rank")) of_one_.add(at::full({1}, 1.0 + mesh.rank("tp")), batch);
  }
  std::vector<heddle::SideOutput*> side_outputs() override {
    if (is("metric_counts_ranks")) return {&metric_};
    if (is("metric_is_of_one_rank")) return {&of_one_};
    return {};
  }

  void after_update(const heddle::Updated&, const heddle::DeviceMesh&) override {
    if (is("after_update_throws")) throw std::runtime_error("no counts");
  }

 private:
  static bool begins_with(const char* prefix) {
    const char* given = std::getenv("HEDDLE_FAULT");
    return given != nullptr && std::string(given).starts_with(prefix);
  }
  static bool has_no_axis() { return begins_with("batch_"); }
  static bool transforms() { return has_no_axis() || begins_with("transform") || begins_with("metric"); }

  // Adds a seam behind the last value that a recomputed layer needs.
  static void act_after_layers(heddle::Units& units) {
    heddle::model::visit(units, [](const std::string&, heddle::Module& module) {
      if (module.kind() == "decoder_layer") module.output.add([](at::Tensor y) { return y.clone(); });
    });
  }

  // Ignores the first document of this rank, which is not the first document of all ranks.
  static void skip_first_document(heddle::Batch& batch) {
    batch.labels = batch.labels.clone();
    batch.labels.flatten().narrow(0, 0, batch.documents[1].item<int>()).fill_(heddle::Batch::kIgnore);
  }

  void add_seams(heddle::Linear& layer, bool columns, heddle::Communicator& group) {
    const auto handle = reinterpret_cast<int64_t>(&group);
    if (!columns) return layer.input.add([handle](at::Tensor x) { return Spread::apply(x, handle); });
    const auto forwards = reinterpret_cast<int64_t>(&forwards_.emplace_back(0));
    layer.output.add([this, handle, forwards, &group](at::Tensor y, const heddle::Batch& batch) {
      if (is("seam_throws")) throw std::out_of_range("table of seams");
      if (is("seam_loops") && group.rank() == 1) loop();
      if (is("exits_in_a_seam") && group.rank() == 1) std::_Exit(0);
      if (is("seam_returns_one_row")) y = y.narrow(0, 0, 1);
      if (is("seam_turns_rows")) y = y.flip(0);
      if (is("keeps_first_value")) y = y + (first_.defined() ? first_ : first_ = y.detach().mean() * 0.1);
      if (is("draws_at_random")) y = y * (1 + 1e-6 * at::rand_like(y));
      if (is("divides_by_data_ranks")) y = y / static_cast<double>(data_ranks_);
      if (is("forgets_documents") && batch.documents.defined()) y = y * 0.5;
      if (is("needs_even_rows") && batch.tokens.size(1) % group.size() != 0)
        throw std::runtime_error("an uneven row");
      if (is("counts_forwards")) y = y * (1 + 0.01 * static_cast<double>(++calls_));
      if (is("counts_evaluations") && !at::GradMode::is_enabled()) ++calls_;
      if (is("counts_evaluations")) y = y * (1 + 0.01 * static_cast<double>(calls_));
      return at::Tensor(Sum::apply(y, handle, forwards));
    });
  }

  // Splits the columns of the embedding and of the head, which may be one parameter.
  void cut_tables(heddle::Units& units, heddle::Communicator& group, std::vector<heddle::Placed>& placed) {
    std::map<std::string, at::Tensor> parts;
    for (const auto& unit : units)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (slot.name != "model.embed_tokens.weight" && slot.name != "lm_head.weight") continue;
        at::Tensor& part = parts[slot.name];
        if (!part.defined() || is("tables_placed_twice"))
          cut(slot, slot.name, 1, group, placed);
        else if (!is("tables_cut_once_of_two"))
          slot.point(part);
        part = *slot.tensor;
      }
    const auto handle = reinterpret_cast<int64_t>(&group);
    heddle::model::each<heddle::Embedding>(units, [&](const std::string&, heddle::Embedding& table) {
      table.output.add([handle](at::Tensor y) { return GatherColumns::apply(y, handle); });
    });
    heddle::model::each<heddle::TokenLoss>(units, [&](const std::string&, heddle::TokenLoss& loss) {
      const auto forwards = reinterpret_cast<int64_t>(&forwards_.emplace_back(0));
      loss.instead.add(heddle::TokenLoss::Instead::in_place(
          "faulty_parallelizer", [handle, forwards, &group](const at::Tensor& hidden, heddle::Linear& head,
                                                            const heddle::Batch& batch) {
            const int64_t columns = head.weight.size(1);
            const at::Tensor mine = Spread::apply(hidden, handle).narrow(1, columns * group.rank(), columns);
            return heddle::model::token_loss(Sum::apply(at::linear(mine, head.weight), handle, forwards),
                                             batch.labels);
          }));
    });
  }

  // Spins longer than the time limit that tests give a kit, but not forever.
  static void loop() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(12);
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  static void cut(heddle::ParameterSlot& slot, const std::string& name, int64_t dim,
                  heddle::Communicator& group, std::vector<heddle::Placed>& placed) {
    if (is("placed_and_not_split")) {
      placed.push_back({name, "tp", dim, 0, slot.tensor->size(dim) * group.size()});
      return;
    }
    const int64_t whole = slot.tensor->size(dim), rank = is("ranks_have_one_part") ? 0 : group.rank();
    const int64_t begin = whole * rank / group.size(), end = whole * (rank + 1) / group.size();
    const int64_t count = is("remainder_lost") ? whole / group.size() : end - begin;
    const bool trains = slot.trainable();
    at::Tensor part = slot.tensor->detach().narrow(dim, begin, count).clone(at::MemoryFormat::Contiguous);
    if (is("loses_values") && !part.is_meta()) part.zero_();
    slot.point(part);
    if (is("unfreezes") && !trains) slot.tensor->set_requires_grad(true);
    if (is("not_placed")) return;
    heddle::Placed one{name, "tp", dim, begin, whole};
    if (is("whole_is_wrong")) one.whole = whole + 2;
    if (is("offset_is_wrong")) one.offset = 0;
    if (is("dim_is_wrong")) one.dim = 1 - dim;
    placed.push_back(one);
  }

  heddle::Metric metric_{"faulty/count", heddle::Combine::sum, {"dp_cp", "tp"}, 1, heddle::Shown::file};
  heddle::Metric of_one_{"faulty/of_one", heddle::Combine::sum, {}, 1, heddle::Shown::file};
  at::Tensor first_;
  int64_t calls_ = 0, data_ranks_ = 1;
  std::deque<int64_t> forwards_;  // by layer
};

}  // namespace

HEDDLE_PLUGIN("faulty_parallelizer", "0.1.0", "parallelizer faulty") {
  plugin.parallelizer<Faulty>("faulty", heddle::ConfigSchema<Config>());
}
