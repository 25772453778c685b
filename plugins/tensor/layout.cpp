// Classification of modules by role, and rules about incompatible styles with their messages.
#include "layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/sequence_core.h"

namespace heddle::tensor {
namespace {

class Maker {
 public:
  Maker(Layout& layout, int ranks, bool sequence_parallel)
      : layout_(layout), ranks_(ranks), sequence_(sequence_parallel) {}

  void sort() {
    for (size_t at = 0; at < layout_.sites.size(); ++at) {
      if (sequence_) gather(at);
      const Site& site = layout_.sites[at];
      check_style(site, sequence_);
      if (sequence_) site.all_tokens ? check_gathered(site) : check_sequence(site);
      const Role role = role_of(site);
      if (role == Role::embedding) layout_.embeddings.push_back(at);
      if (role == Role::projection && site.parent == Site::kNone) add_block(at, {at});
      if (!site.all_tokens && ((role == Role::norm && !in_block(site)) ||
                               (sequence_ && has_own_rows(site) && children(site, Role::projection).empty())))
        layout_.on_rows.push_back(at);
      const std::vector<size_t> linears = children(site, Role::projection);
      if (linears.empty()) continue;
      role == Role::projection ? add_low_rank(at, linears) : sort(at, linears);
    }
  }

 private:
  // Parents precede their children. A mixture of experts gets all tokens, whatever parts of it are split.
  void gather(size_t at) {
    Site& site = layout_.sites[at];
    site.all_tokens = site.parent != Site::kNone && layout_.sites[site.parent].all_tokens;
    if (site.all_tokens || !(stays_whole(site) || is_mixture(layout_.sites, site))) return;
    site.all_tokens = true;
    layout_.gathered.push_back(at);
  }

  // Returns true for attention or a mixer whose layers the plan does not split.
  bool stays_whole(const Site& site) const {
    if (role_of(site) != Role::mixer && children(site, Role::attention_core).empty()) return false;
    const std::vector<size_t> linears = children(site, Role::projection);
    return !linears.empty() && find(linears, true) == nullptr;
  }

  void check_gathered(const Site& site) const {
    if (is(site, Style::sequence_parallel))
      refuse(site, "the style 'sequence_parallel' does not fit '" + site.path + "', which needs all tokens",
             "remove it from the plan");
  }

  std::vector<size_t> children(const Site& site, Role role) const {
    std::vector<size_t> out;
    for (const size_t child : site.children)
      if (role_of(layout_.sites[child]) == role) out.push_back(child);
    return out;
  }
  bool is_inside_block(const Site& site) const {
    for (const Site* at = &site; at->parent != Site::kNone; at = &layout_.sites[at->parent])
      if (in_block(*at)) return true;
    return false;
  }
  bool in_block(const Site& site) const {
    if (site.parent == Site::kNone) return false;
    const Site& parent = layout_.sites[site.parent];
    return !children(parent, Role::projection).empty() && children(parent, Role::loss).empty();
  }

  void sort(size_t at, const std::vector<size_t>& linears) {
    const std::vector<size_t> losses = children(layout_.sites[at], Role::loss);
    if (losses.empty()) return add_block(at, linears);
    if (linears.size() != 1)
      refuse(layout_.sites[at], "'" + layout_.sites[at].path + "' has several linear layers beside one loss",
             "remove it from the plan");
    const Site& head = layout_.sites[linears[0]];
    if (is(head, Style::rowwise))
      refuse(head, "'" + head.path + "' gets whole hidden states, but 'rowwise' needs split ones",
             "use colwise or rowwise_rep");
    if (head.style && model::as<Linear>(*head.module)->bias.defined())
      refuse(head, "'" + head.path + "' has a bias, which a loss over a split vocabulary does not support",
             "remove it from the plan");
    layout_.heads.push_back({linears[0], losses[0]});
  }

  void add_low_rank(size_t at, const std::vector<size_t>& linears) {
    const Site& layer = layout_.sites[at];
    if (linears.size() > 2)
      refuse(layer,
             "the linear layer '" + layer.path + "' has " + std::to_string(linears.size()) +
                 " child linear layers, but tensor parallelism supports only two, one after the other",
             "set tp_size: 1");
    for (const size_t linear : linears)
      if (const Site& site = layout_.sites[linear]; site.style)
        refuse(site, "'" + site.path + "' is split like its parent layer, and cannot have its own style",
               "remove it from the plan");
    if (linears.size() == 2) return (void)layout_.low_ranks.push_back({at, linears[0], linears[1]});
    if (is(layer, Style::rowwise))
      refuse(layer,
             "'" + layer.path + "' gets split hidden states, but its child linear layer '" +
                 layout_.sites[linears[0]].path + "' gets its input from a sibling layer",
             "set tp_size: 1");
    layout_.low_ranks.push_back({at, std::nullopt, linears[0]});
  }

  void add_block(size_t at, const std::vector<size_t>& linears) {
    Block block{at, linears, children(layout_.sites[at], Role::norm), Inside::whole};
    const Site* split = find(linears, true);
    if (split != nullptr) {
      block.inside = Inside::split;
      check_pairs(linears, *split);
    }
    if (split != nullptr) check_heads(layout_.sites[at]);
    for (const size_t norm : block.norms) check_norm(block, layout_.sites[norm]);
    layout_.blocks.push_back(std::move(block));
  }

  const Site* find(const std::vector<size_t>& linears, bool split) const {
    for (const size_t linear : linears)
      if (stays_split(layout_.sites[linear]) == split) return &layout_.sites[linear];
    return nullptr;
  }

  // Modules compute on token rows that the ranks split, except for cores between the layers of a block.
  void check_tokens(const Site& site) const {
    const bool is_core =
        role_of(site) == Role::attention_core || model::as<SequenceCore>(*site.module) != nullptr;
    const bool in_block =
        site.parent != Site::kNone && !children(layout_.sites[site.parent], Role::projection).empty();
    if (!is_core || !in_block)
      refuse_mixed_tokens(*site.module, site.path, "tp", "distributed.sequence_parallel",
                          "set sequence_parallel: false");
  }

  // Refuses modules that mix tokens, whether they are declared or not.
  void check_sequence(const Site& site) const {
    if (site.module->traits().tokens == TokenUse::mixes) check_tokens(site);
    check_known(site, !children(site, Role::projection).empty(), is_inside_block(site));
    check_tokens(site);
  }

  // If a layer's outputs stay split, the next layer must take split inputs.
  void check_pairs(const std::vector<size_t>& linears, const Site& split) const {
    if (const Site* whole = find(linears, false))
      refuse(split,
             "the plan gives '" + split.path + "' the style '" + style_name(*split.style) + "', but '" +
                 whole->path + "' beside it is " +
                 (whole->style ? "'" + style_name(*whole->style) + "'" : "not split"),
             "give colwise or rowwise to all layers inside a block, or to none");
    const auto any = [&](Style style) {
      return std::any_of(linears.begin(), linears.end(),
                         [&](size_t linear) { return is(layout_.sites[linear], style); });
    };
    if (any(Style::colwise) && any(Style::rowwise)) return;
    refuse(split,
           "the plan splits '" + split.path + "' as '" + style_name(*split.style) + "' without a '" +
               (any(Style::colwise) ? "rowwise" : "colwise") + "' layer beside it",
           "use colwise_rep or rowwise_rep for a single layer");
  }

  // Returns head counts, from the core or else from the layers that feed it: keys and values have the fewest
  // heads, queries the most.
  void check_heads(const Site& attention) const {
    for (const auto& [key, number] : attention.module->traits().heads) check_divides(key, number);
    if (role_of(attention) != Role::attention) return;
    int64_t head_dim = 0, most = 0, fewest = 0;
    HeadCounts counts;
    for (const size_t at : attention.children) {
      const Site& site = layout_.sites[at];
      if (const auto* core = model::as<AttentionCore>(*site.module)) {
        head_dim = core->head_dim();
        counts = core->counts();
      }
      const auto* linear = model::as<Linear>(*site.module);
      if (linear == nullptr || !is(site, Style::colwise)) continue;
      const int64_t rows = linear->weight.size(0);
      most = std::max(most, rows);
      fewest = fewest == 0 ? rows : std::min(fewest, rows);
    }
    if (head_dim == 0) return;
    check_divides("num_key_value_heads", counts.keys > 0 ? counts.keys : fewest / head_dim);
    check_divides("num_attention_heads", counts.queries > 0 ? counts.queries : most / head_dim);
  }

  void check_divides(const std::string& name, int64_t number) const {
    if (number % ranks_ == 0) return;
    throw Error(ErrorCode::mesh, "distributed.tp_size",
                name + " (" + std::to_string(number) + ") must be divisible by TP size (" +
                    std::to_string(ranks_) + ")",
                "set a tp_size that divides the heads, or a tp_plan that leaves attention whole");
  }

  // Inside a split attention or mixer a norm must apply to single heads.
  void check_norm(const Block& block, const Site& norm) const {
    const bool heads = block.inside == Inside::split;
    if (is(norm, Style::sequence_parallel) || (is(norm, Style::replicated_with_grad_allreduce) && !heads))
      refuse(norm,
             "the style '" + style_name(*norm.style) + "' does not fit '" + norm.path + "', which gets " +
                 (heads ? "parts of heads, not of the tokens" : "whole hidden states"),
             "remove it from the plan; its gradient follows from the layers around it");
    const Site& site = layout_.sites[block.site];
    if (heads && role_of(site) != Role::attention && role_of(site) != Role::mixer &&
        !norm.module->traits().elementwise)
      refuse(norm, "'" + norm.path + "' normalizes over elements that the plan splits among ranks",
             "leave '" + site.path + "' whole");
  }

  Layout& layout_;
  int ranks_;
  bool sequence_;
};

}  // namespace

Layout lay_out(Sites sites, int ranks, bool sequence_parallel) {
  Layout layout;
  layout.sites = std::move(sites);
  Maker(layout, ranks, sequence_parallel).sort();
  return layout;
}

}  // namespace heddle::tensor
