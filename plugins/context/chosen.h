// Attention over keys that an indexer chooses from whole rows: the choice needs the keys of all ranks, and
// the attention deals its heads, whatever the method is.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "heddle/nn/attention_core.h"
#include "heddle/nn/row_gather.h"
#include "mixers.h"

namespace heddle::context {

// own [tokens, any] of all ranks, in the order of the rows. Below autograd.
at::Tensor gathered(const at::Tensor& own, const WholeRows& rows);

using Attend = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const model::Heads& heads)>;

// heads.chosen: of this rank's queries, by places in whole rows. attend() gets whole rows and some heads.
// Throws as deal_heads().
at::Tensor attend_over_chosen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::Heads& heads, const std::shared_ptr<const WholeRows>& rows,
                              const Attend& attend);

}  // namespace heddle::context
