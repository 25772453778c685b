// Tensor and sequence parallelism, as a parallelizer of the axis tp.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/module_unit.h"
#include "heddle/model/region.h"
#include "heddle/nn/router.h"
#include "heddle/sdk.h"
#include "layers.h"
#include "layout.h"
#include "splitter.h"

namespace heddle::tensor {
namespace {

// Tensor-parallel fields of NeMo AutoModel's strategies.
struct TensorConfig {
  Node tp_plan;
  bool sequence_parallel = false;
  bool enable_async_tensor_parallel = false;
};

using Config = TensorConfig;

inline void check_plan(const Node& value) {
  if (value.is_null() || value.is_map()) return;
  throw Error(ErrorCode::config, value.where(), "expected a map or null, got " + value.written(),
              "set a map; the engine replaces the name of a plan by its map");
}

inline ConfigSchema<TensorConfig> schema() {
  using C = TensorConfig;
  return ConfigSchema<C>()
      .field("tp_plan", &C::tp_plan,
             "Styles of modules by path: a map, or the name of a plan that a plugin offers. null: the plan "
             "of the architecture.",
             Check{"map or null", check_plan})
      .field("sequence_parallel", &C::sequence_parallel,
             "Split the token rows among the ranks of tp outside of split layers.")
      .field("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
             "Overlap the communication of a part of a tensor with the products of other parts.")
      .rule([](const C& config) -> std::string {
        if (!config.enable_async_tensor_parallel || config.sequence_parallel) return "";
        return "enable_async_tensor_parallel=True requires sequence_parallel=True";
      });
}

// Splits linear layers, the vocabulary and the loss by a plan (Shoeybi et al. 2019). With sequence
// parallelism, hidden states between split layers are token rows (Korthikanti et al. 2022).
class Tensor : public IParallelizer {
 public:
  explicit Tensor(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{config | mesh | input} for plans that do not match and heads that do not divide.
  void check(Units& units, const Sizes& sizes) override;
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;

 private:
  Config config_;
};

Layout read_layout(Units& units, const Config& config, int ranks, Extent extent) {
  Sites sites = find_sites(units);
  const Rules rules = choose_rules(units, config.tp_plan);
  // The model's own plan may contain modules that are not on this rank's stage. A plan in the YAML must not
  // contain unknown modules.
  const bool own = !config.tp_plan.is_map();
  give_styles(sites, rules, own ? Extent::stage : extent);
  if (own) leave_whole(sites, ranks);
  return lay_out(std::move(sites), ranks, config.sequence_parallel);
}

class Applier {
 public:
  Applier(Layout& layout, const Border& border, Splitter& splitter)
      : layout_(layout),
        border_(border),
        splitter_(splitter),
        on_rows_{inward(border), outward(border)},
        on_all_{inward(of_all_tokens(border)), outward(of_all_tokens(border))},
        inward_of_whole_(inward_of_whole(border)),
        outward_of_whole_(outward_of_whole(border)) {}

  void run() {
    for (const size_t at : layout_.embeddings) embedding(layout_.sites[at]);
    for (const Block& block : layout_.blocks) this->block(block);
    for (const HeadOf& head : layout_.heads) this->head(head);
    for (const LowRank& pair : layout_.low_ranks) low_rank(pair);
    for (const size_t at : layout_.gathered) gather(*layout_.sites[at].module);
    if (border_.sequence)
      for (const size_t at : layout_.on_rows) sum_gradients(*layout_.sites[at].module);
  }

 private:
  // Products of split layers, between hidden states of this rank's token rows or of all tokens.
  struct Products {
    Product inward, outward;
  };
  static Border of_all_tokens(Border border) {
    border.sequence = border.overlapped = false;
    return border;
  }
  bool on_rows(size_t at) const { return border_.sequence && !layout_.sites[at].all_tokens; }
  const Products& products(size_t at) const { return layout_.sites[at].all_tokens ? on_all_ : on_rows_; }
  Linear& linear(size_t at) const { return *model::as<Linear>(*layout_.sites[at].module); }

  void gather(Module& module) {
    module.input.add(whole_rows(border_));
    module.output.add(own_rows_of_whole(border_));
  }

  void sum_gradients(Module& module) {
    for (ParameterSlot& slot : module.slots()) splitter_.sum_gradient(*slot.tensor);
  }

  void embedding(const Site& site) {
    auto& module = *model::as<Embedding>(*site.module);
    if (!site.style || site.style == Style::replicated) {
      if (border_.sequence) module.output.add(own_rows_of_whole(border_));
      return;
    }
    const int64_t whole = module.weight.size(0);
    module.rows = model::RowRange{splitter_.split(module.weight, 0).begin, whole};
    module.output.add(embedded(border_));
  }

  void split_columns(Linear& layer) {
    splitter_.split(layer.weight, 0);
    if (layer.bias.defined()) splitter_.split(layer.bias, 0);
  }

  void block(const Block& block) {
    if (block.inside == Inside::split) {
      for (const size_t at : block.linears) split_linear(at);
      for (const size_t at : block.norms) sum_gradients(*layout_.sites[at].module);
      split_own(*layout_.sites[block.site].module);
      return;
    }
    for (const size_t at : block.linears) whole_linear(at);
    if (on_rows(block.site)) gather(*layout_.sites[block.site].module);
  }

  // An attention's own parameters have one element per head (sinks), those of a mixer several per head.
  void split_own(Module& module) {
    const Role role = module.traits().role;
    if (role != Role::attention && role != Role::mixer) return;
    for (ParameterSlot& slot : module.slots()) splitter_.split(*slot.tensor, 0);
  }

  void split_linear(size_t at) {
    Linear& layer = linear(at);
    if (layout_.sites[at].style == Style::colwise) {
      split_columns(layer);
      layer.instead.add(products(at).inward);
      return;
    }
    splitter_.split(layer.weight, 1);
    if (layer.bias.defined() && on_rows(at)) splitter_.sum_gradient(layer.bias);
    layer.instead.add(products(at).outward);
  }

  // Splits a layer between whole hidden states.
  void whole_linear(size_t at) {
    Linear& layer = linear(at);
    const std::optional<Style> style = layout_.sites[at].style;
    if (style == Style::colwise_rep) {
      const int64_t whole = layer.weight.size(0);
      split_columns(layer);
      layer.instead.add(inward_of_whole_);
      layer.output.add(whole_columns(border_, whole));
    } else if (style == Style::rowwise_rep) {
      splitter_.split(layer.weight, 1);
      layer.instead.add(outward_of_whole_);
    }
  }

  void head(const HeadOf& head) {
    Linear& layer = linear(head.linear);
    const std::optional<Style> style = layout_.sites[head.linear].style;
    if (style == Style::colwise || style == Style::colwise_rep) {
      const int64_t whole = layer.weight.size(0);
      const Part part = splitter_.split(layer.weight, 0);
      layer.instead.add(on_rows_.inward);
      layer.output.add(whole_columns(border_, whole));
      auto& loss = *model::as<TokenLoss>(*layout_.sites[head.loss].module);
      loss.split = split_of(border_, part, whole);
      loss.instead.add(layer.children().empty()
                           ? split_loss(border_, part, whole, loss.soft_cap())
                           : split_loss_of_logits(border_, part, whole, loss.soft_cap()));
      return;
    }
    if (border_.sequence) layer.input.add(whole_rows(border_));
    if (style != Style::rowwise_rep) return;
    splitter_.split(layer.weight, 1);
    layer.instead.add(outward_of_whole_);
  }

  // Splits a pair so that only low-rank values are communicated. The second layer is split like a colwise
  // layer's outputs, the first like a rowwise layer's inputs. The other layer of the pair stays whole, and on
  // token rows its gradient is partial.
  void low_rank(const LowRank& pair) {
    Linear& second = linear(pair.second);
    const std::optional<Style> style = layout_.sites[pair.layer].style;
    if (style == Style::colwise || style == Style::colwise_rep) {
      split_columns(second);
      const bool gathers = style == Style::colwise || is_head(pair.layer);
      second.instead.add(gathers ? products(pair.layer).inward : inward_of_whole_);
      if (gathers && on_rows(pair.layer) && pair.first) sum_gradients(linear(*pair.first));
    } else if (style == Style::rowwise) {
      Linear& first = linear(*pair.first);
      splitter_.split(first.weight, 1);
      first.instead.add(products(pair.layer).outward);
      if (on_rows(pair.layer)) sum_gradients(second);
    }
  }

  bool is_head(size_t at) const {
    return std::any_of(layout_.heads.begin(), layout_.heads.end(),
                       [&](const HeadOf& head) { return head.linear == at; });
  }

  Layout& layout_;
  const Border& border_;
  Splitter& splitter_;
  Products on_rows_, on_all_;
  Product inward_of_whole_, outward_of_whole_;
};

// Uses the first rank's expert selection on all ranks. They have the same tokens, but their logits may differ
// in the last bit, because products round differently at other alignments.
void link_routers(const Units& units, Communicator& ranks) {
  const auto first = Router::Agree::around("tensor", 0, [&ranks](at::Tensor experts, const auto& next) {
    return model::once(model::Operator::collective, [&] {
      at::Tensor chosen = next(std::move(experts)).clone();
      ranks.broadcast(chosen, 0)->wait();
      return chosen;
    });
  });
  model::each<Router>(units, [&](const std::string&, Router& router) { router.agree.add(first); });
}

Needs Tensor::needs() const {
  Needs needs;
  needs.axes = {"tp"};
  return needs;
}

void Tensor::check(Units& units, const Sizes& sizes) {
  if (sizes.tp > 1) read_layout(units, config_, sizes.tp, Extent::whole_model);
}

std::vector<Placed> Tensor::apply(Units& units, const DeviceMesh& mesh) {
  if (mesh.size("tp") == 1) return {};
  const Extent extent = mesh.size(kPipelineAxis) == 1 ? Extent::whole_model : Extent::stage;
  Layout layout = read_layout(units, config_, mesh.size("tp"), extent);
  const Border border{mesh, &mesh.group("tp"), config_.sequence_parallel,
                      config_.enable_async_tensor_parallel};
  link_routers(units, *border.ranks);
  Splitter splitter(units, mesh);
  Applier(layout, border, splitter).run();
  return splitter.finish();
}

}  // namespace
}  // namespace heddle::tensor

HEDDLE_PLUGIN("tensor", "0.1.0", "parallelizer tensor") {
  auto& offered = plugin.parallelizer<heddle::tensor::Tensor>("tensor", heddle::tensor::schema());
  offered.plan_key = "tp_plan";
  offered.axis_fields = {"tp_plan", "sequence_parallel", "enable_async_tensor_parallel"};
}
