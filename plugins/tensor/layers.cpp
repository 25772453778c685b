// Computation of split layers: the products of whole layers between two regions.
#include "layers.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "heddle/model/autocast.h"
#include "overlap.h"
#include "regions.h"

namespace heddle::tensor {
namespace {

Product make(Linear::Instead::InPlace product) {
  return Linear::Instead::in_place("tensor", std::move(product));
}

at::Tensor enter(const at::Tensor& x, const Batch& batch, const Border& border) {
  if (!border.sequence) return share(x, *border.ranks);
  return gather_rows(x, batch.tokens.numel(), *border.ranks, Gradient::part);
}

at::Tensor leave(at::Tensor y, const Border& border) {
  return border.sequence ? sum_to_rows(std::move(y), *border.ranks) : sum(std::move(y), *border.ranks);
}

at::Tensor product_of(const Linear& layer, const at::Tensor& x, const Batch& batch) {
  return model::linear(x, layer.weight, {}, batch.weight_gradients);
}

// Overlapped products do not cast, so autocast uses plain products.
bool overlaps(const Border& border) {
  return border.overlapped && model::Autocast::active() == nullptr;
}

model::FewTensors with_bias(at::Tensor y, const Linear& layer) {
  if (layer.bias.defined()) y = y + layer.bias;
  model::FewTensors out;
  out.push_back(std::move(y));
  return out;
}

}  // namespace

Product inward(const Border& border) {
  return make([border](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
    return overlaps(border) ? gathered_products(layers, x, batch, *border.ranks)
                            : model::products(layers, enter(x, batch, border), batch);
  });
}

Product inward_of_whole(const Border& border) {
  return make([border](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
    return model::products(layers, share(x, *border.ranks), batch);
  });
}

Product outward(const Border& border) {
  return make([border](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
    return with_bias(overlaps(border) ? scattered_product(*layers[0], x, batch, *border.ranks)
                                      : leave(product_of(*layers[0], x, batch), border),
                     *layers[0]);
  });
}

Product outward_of_whole(const Border& border) {
  return make([border](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
    at::Tensor y = product_of(*layers[0], slice_columns(x, *border.ranks), batch);
    return with_bias(sum(std::move(y), *border.ranks), *layers[0]);
  });
}

Seam::Transform embedded(const Border& border) {
  return [border](at::Tensor y, const Batch&) { return leave(std::move(y), border); };
}

TokenLoss::Instead::LinkPointer split_loss(const Border& border, const Part& part, int64_t whole,
                                           double soft_cap) {
  const model::VocabularyPart vocabulary{part.begin, whole, border.ranks};
  return TokenLoss::Instead::in_place(
      "tensor", [border, vocabulary, soft_cap](const at::Tensor& hidden, Linear& head, const Batch& batch) {
        return model::linear_token_loss(enter(hidden, batch, border), head.weight, batch.labels, vocabulary,
                                        soft_cap);
      });
}

TokenLoss::Split split_of(const Border& border, const Part& part, int64_t whole) {
  return {{part.begin, whole, border.ranks},
          [border](const at::Tensor& hidden, const Batch& batch) { return enter(hidden, batch, border); }};
}

TokenLoss::Instead::LinkPointer split_loss_of_logits(const Border& border, const Part& part, int64_t whole,
                                                     double soft_cap) {
  const model::VocabularyPart vocabulary{part.begin, whole, border.ranks};
  return TokenLoss::Instead::in_place(
      "tensor", [vocabulary, soft_cap](const at::Tensor& hidden, Linear& head, const Batch& batch) {
        const auto own = [](std::span<Linear* const> layers, const at::Tensor& x, const Batch& within) {
          return model::products(layers, x, within);
        };
        Linear* const layer = &head;
        const model::FewTensors logits = head.instead.call(own, {&layer, 1}, hidden, batch);
        return model::token_loss(logits[0], batch.labels, vocabulary, soft_cap);
      });
}

Seam::Transform whole_rows(const Border& border) {
  return [border](at::Tensor x, const Batch& batch) {
    return gather_rows(std::move(x), batch.tokens.numel(), *border.ranks, Gradient::whole);
  };
}

Seam::Transform own_rows_of_whole(const Border& border) {
  return [border](at::Tensor y, const Batch&) { return slice_rows(std::move(y), *border.ranks); };
}

Seam::Transform whole_columns(const Border& border, int64_t whole) {
  return [border, whole](at::Tensor y, const Batch&) {
    return gather_columns(std::move(y), whole, *border.ranks);
  };
}

}  // namespace heddle::tensor
