// Exchange of the inputs of mixers: one all-to-all of the columns of all inputs in each direction, reversed
// in the backward.
#include "mixers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/split_with_sizes.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"

namespace heddle::context {
namespace {

struct Columns {
  size_t tensor;
  int64_t begin, count;
};

// Columns of some tensors that each rank computes: [rank].
class Deal {
 public:
  // widths, dtypes: those of the tensors with all columns.
  Deal(std::vector<int64_t> widths, std::vector<at::ScalarType> dtypes,
       std::vector<std::vector<Columns>> columns, std::shared_ptr<const WholeRows> rows)
      : widths_(std::move(widths)),
        dtypes_(std::move(dtypes)),
        wide_(dtypes_[0]),
        columns_(std::move(columns)),
        rows_(std::move(rows)) {
    for (const at::ScalarType dtype : dtypes_) wide_ = c10::promoteTypes(wide_, dtype);
  }

  // Exchanges all columns of this rank's tokens for this rank's columns of whole rows.
  at::Tensor whole(at::TensorList in) const {
    const int64_t tokens = in[0].size(0);
    const std::vector<int64_t> sent_each = sizes(tokens);
    const at::Tensor sent = at::empty({sum(sent_each)}, in[0].options().dtype(wide_));
    int64_t at = 0;
    for (const std::vector<Columns>& of_rank : columns_) {
      const at::Tensor part = sent.narrow(0, at, tokens * width(of_rank)).view({tokens, width(of_rank)});
      int64_t column = 0;
      for (const Columns& one : of_rank) {
        part.narrow(1, column, one.count).copy_(in[one.tensor].narrow(1, one.begin, one.count));
        column += one.count;
      }
      at += part.numel();
    }
    const int64_t mine = width(columns_[rank()]);
    const at::Tensor received = at::empty({sum(sizes_of_mine(tokens))}, sent.options());
    rows_->ranks->all_to_all(received, sent, sizes_of_mine(tokens), sent_each)->wait();
    return rows_at(received.view({-1, mine}), rows_->order.whole);
  }

  // Inverse of whole(). Sums columns that several ranks computed.
  std::vector<at::Tensor> own(const at::Tensor& whole) const {
    const at::Tensor sent = rows_at(whole, rows_->order.parts);
    const int64_t tokens = sent.size(0) / rows_->ranks->size();
    const std::vector<int64_t> received_each = sizes(tokens);
    const at::Tensor received = at::empty({sum(received_each)}, sent.options());
    rows_->ranks->all_to_all(received, sent.view({-1}), received_each, sizes_of_mine(tokens))->wait();
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < widths_.size(); ++i)
      out.push_back(at::empty({tokens, widths_[i]}, sent.options().dtype(dtypes_[i])));
    std::vector<int64_t> written(out.size());  // columns written so far
    int64_t at = 0;
    for (const std::vector<Columns>& of_rank : columns_) {
      const at::Tensor part = received.narrow(0, at, tokens * width(of_rank)).view({tokens, width(of_rank)});
      int64_t column = 0;
      for (const Columns& one : of_rank) {
        const at::Tensor from = part.narrow(1, column, one.count);
        const at::Tensor to = out[one.tensor].narrow(1, one.begin, one.count);
        one.begin < written[one.tensor] ? to.add_(from) : to.copy_(from);
        written[one.tensor] = one.begin + one.count;
        column += one.count;
      }
      at += part.numel();
    }
    return out;
  }

  // Splits `whole`, which holds this rank's columns of all tensors side by side.
  std::vector<at::Tensor> apart(const at::Tensor& whole) const {
    std::vector<int64_t> widths;
    for (const Columns& one : columns_[rank()]) widths.push_back(one.count);
    std::vector<at::Tensor> out = at::split_with_sizes(whole, widths, 1);
    for (size_t i = 0; i < out.size(); ++i) out[i] = out[i].to(dtypes_[i]);
    return out;
  }

 private:
  size_t rank() const { return static_cast<size_t>(rows_->ranks->rank()); }
  static int64_t width(const std::vector<Columns>& of_rank) {
    int64_t out = 0;
    for (const Columns& one : of_rank) out += one.count;
    return out;
  }
  static int64_t sum(const std::vector<int64_t>& sizes) {
    int64_t out = 0;
    for (const int64_t size : sizes) out += size;
    return out;
  }
  // Elements of each rank's columns for `tokens` tokens.
  std::vector<int64_t> sizes(int64_t tokens) const {
    std::vector<int64_t> out;
    for (const std::vector<Columns>& of_rank : columns_) out.push_back(tokens * width(of_rank));
    return out;
  }
  std::vector<int64_t> sizes_of_mine(int64_t tokens) const {
    return std::vector<int64_t>(columns_.size(), tokens * width(columns_[rank()]));
  }

  std::vector<int64_t> widths_;
  std::vector<at::ScalarType> dtypes_;
  at::ScalarType wide_;
  std::vector<std::vector<Columns>> columns_;
  std::shared_ptr<const WholeRows> rows_;
};

struct WholeRowsNode final : model::LayerNode {
  WholeRowsNode() : LayerNode("ContextWholeRowsBackward") {}
  std::shared_ptr<const Deal> deal;
  model::Gradients backward(model::Gradients&& gradients) override {
    return deal->own(gradients[0].contiguous());
  }
};

struct OwnRowsNode final : model::LayerNode {
  OwnRowsNode() : LayerNode("ContextOwnRowsBackward") {}
  std::shared_ptr<const Deal> deal;
  model::Gradients backward(model::Gradients&& gradients) override { return {deal->whole(gradients[0])}; }
};

Columns columns_of(size_t tensor, int64_t width, int64_t first, int64_t count, int64_t of) {
  return {tensor, width / of * first, width / of * count};
}

Columns columns_of_heads(size_t tensor, int64_t width, const model::HeadRange& all,
                         const model::HeadRange& range) {
  return columns_of(tensor, width, range.first_group * all.heads + range.first_head,
                    range.groups * range.heads, all.groups * all.heads);
}

}  // namespace

// index_select has no kernel for meta.
at::Tensor rows_at(const at::Tensor& x, const at::Tensor& places) {
  if (x.is_meta()) return at::empty({places.size(0), x.size(1)}, x.options());
  return at::index_select(x, 0, places);
}

std::vector<model::HeadRange> deal_heads(const model::HeadRange& all, int ranks) {
  if (all.groups * all.heads < ranks)
    throw Error(
        ErrorCode::config, "distributed.cp_size",
        "the ranks of cp split the heads of mixers and of attention over selected keys: a rank of tp has " +
            std::to_string(all.groups * all.heads) + ", cp_size is " + std::to_string(ranks),
        "choose a cp_size of at most the number of heads");
  std::vector<model::HeadRange> out;
  if (ranks <= all.groups) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first = all.groups * rank / ranks, end = all.groups * (rank + 1) / ranks;
      out.push_back({end - first, all.heads, first, 0});
    }
    return out;
  }
  for (int64_t group = 0; group < all.groups; ++group) {
    const int64_t sharing = ranks * (group + 1) / all.groups - ranks * group / all.groups;
    for (int64_t rank = 0; rank < sharing; ++rank) {
      const int64_t first = all.heads * rank / sharing, end = all.heads * (rank + 1) / sharing;
      out.push_back({1, end - first, group, first});
    }
  }
  return out;
}

model::SequenceInputs to_whole_rows(const model::SequenceInputs& in, const model::HeadRange& all,
                                    const std::vector<model::HeadRange>& ranges,
                                    const std::shared_ptr<const WholeRows>& rows) {
  std::vector<at::Tensor> tensors(in.of_heads.begin(), in.of_heads.end());
  tensors.insert(tensors.end(), in.of_groups.begin(), in.of_groups.end());
  std::vector<std::vector<Columns>> columns;
  for (const model::HeadRange& range : ranges) {
    std::vector<Columns>& of_rank = columns.emplace_back();
    for (size_t i = 0; i < tensors.size(); ++i)
      of_rank.push_back(i < in.of_heads.size()
                            ? columns_of_heads(i, tensors[i].size(1), all, range)
                            : columns_of(i, tensors[i].size(1), range.first_group, range.groups, all.groups));
  }
  std::vector<int64_t> widths;
  std::vector<at::ScalarType> dtypes;
  for (const at::Tensor& one : tensors) {
    widths.push_back(one.size(1));
    dtypes.push_back(one.scalar_type());
  }
  const auto deal =
      std::make_shared<const Deal>(std::move(widths), std::move(dtypes), std::move(columns), rows);
  const at::TensorList list(tensors);
  const at::Tensor whole = model::forward_with<WholeRowsNode>(
      [&](WholeRowsNode& node) { node.deal = deal; },
      [&] { return model::once(model::Operator::collective, [&] { return deal->whole(list); }); }, list);
  const std::vector<at::Tensor> parts = deal->apart(whole);
  const auto border = parts.begin() + static_cast<std::ptrdiff_t>(in.of_heads.size());
  return {model::FewTensors(parts.begin(), border), model::FewTensors(border, parts.end())};
}

at::Tensor to_own_rows(const at::Tensor& y, const model::HeadRange& all,
                       const std::vector<model::HeadRange>& ranges,
                       const std::shared_ptr<const WholeRows>& rows) {
  const model::HeadRange& mine = ranges[static_cast<size_t>(rows->ranks->rank())];
  const int64_t width = y.size(1) / (mine.groups * mine.heads) * all.groups * all.heads;
  std::vector<std::vector<Columns>> columns;
  for (const model::HeadRange& range : ranges) columns.push_back({columns_of_heads(0, width, all, range)});
  const auto deal = std::make_shared<const Deal>(
      std::vector<int64_t>{width}, std::vector<at::ScalarType>{y.scalar_type()}, std::move(columns), rows);
  return model::forward_with<OwnRowsNode>([&](OwnRowsNode& node) { node.deal = deal; },
                                          [&] {
                                            return model::once(model::Operator::collective, [&] {
                                              return std::move(deal->own(y.contiguous())[0]);
                                            });
                                          },
                                          y);
}

}  // namespace heddle::context
