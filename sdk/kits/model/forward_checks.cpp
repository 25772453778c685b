// Compares a forward with itself after changes that must not affect the result.
#include "forward_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "../attempt.h"
#include "built_model.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

constexpr double kMost = 1e-5;  // relative to the loss, because a model may compute parts in float32

void near(double got, double want, const std::string& what) {
  const double apart = std::abs(got - want) / std::max(std::abs(want), 1.0);
  if (!(apart <= kMost)) found(what + ": the loss differs by " + written(apart));
}

Batch batch_of(const ModelSite& site, int64_t step = 1) {
  return site.here(rows_of(step, 0, 1, true, rows_for(site.spec)).front());
}

Batch rows_from(const Batch& batch, int64_t first, int64_t count) {
  Batch out;
  out.tokens = batch.tokens.narrow(0, first, count).contiguous();
  out.labels = batch.labels.narrow(0, first, count).contiguous();
  return out;
}

std::string sizes_of(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

void check_logits(BuiltModel& model, const Batch& batch, const ModelSpec& spec) {
  Batch question = batch;
  question.labels = at::Tensor();
  const at::NoGradGuard no_gradients;
  const at::Tensor logits = model.forward(question);
  const int64_t tokens = batch.tokens.numel(), width = logits.dim() == 0 ? 0 : logits.size(-1);
  if (width < spec.facts().vocabulary || logits.numel() != tokens * width)
    found("without labels the last unit gives " + sizes_of(logits) + " for " + std::to_string(tokens) +
          " tokens and a vocabulary of " + std::to_string(spec.facts().vocabulary));
  const double loss = at::cross_entropy_loss(logits.reshape({tokens, width}).to(at::kDouble),
                                             batch.labels.flatten(), {}, at::Reduction::Sum, Batch::kIgnore)
                          .item<double>();
  near(model.main_loss(batch), loss, "the loss is not the sum of the token losses of the logits");
}

}  // namespace

std::string gives_the_sum_of_losses(const ModelSite& site) {
  BuiltModel model(site);
  const Batch batch = batch_of(site);
  at::Tensor out;
  {
    const at::NoGradGuard no_gradients;
    out = model.forward(batch);
  }
  if (out.numel() != 1) found("with labels the last unit gives " + sizes_of(out) + " instead of one number");
  const double all = out.sum().item<double>();
  if (!std::isfinite(all)) found("the loss is " + std::to_string(all));
  double sum = 0;
  for (int64_t row = 0; row < batch.tokens.size(0); ++row) sum += model.main_loss(rows_from(batch, row, 1));
  near(sum, all, "the loss of several rows is not the sum of their losses");
  Batch first = batch, second = batch;
  first.labels = batch.labels.clone(), second.labels = batch.labels.clone();
  const int64_t half = batch.labels.size(1) / 2;
  first.labels.narrow(1, 0, half).fill_(Batch::kIgnore);
  second.labels.narrow(1, half, batch.labels.size(1) - half).fill_(Batch::kIgnore);
  near(model.main_loss(first) + model.main_loss(second), all,
       "an ignored label counts, or the loss is a mean");
  first.labels = at::full_like(batch.labels, Batch::kIgnore);
  near(model.main_loss(first), 0, "a batch with only ignored labels has a loss");
  check_logits(model, batch, site.spec);
  BuiltModel narrow(site, at::kBFloat16);
  const at::NoGradGuard no_gradients;
  if (const at::ScalarType type = narrow.forward(batch).scalar_type(); type != at::kFloat)
    found("a model in bfloat16 returns its loss in " + std::string(c10::toString(type)) +
          " instead of Float");
  return "";
}

namespace {

void same_gradients(const std::map<std::string, at::Tensor>& got,
                    const std::map<std::string, at::Tensor>& want) {
  double overall = 1e-12;
  for (const auto& [name, gradient] : want)
    if (gradient.defined()) overall = std::max(overall, gradient.norm().item<double>());
  for (const auto& [name, gradient] : want) {
    const at::Tensor& again = got.at(name);
    if (gradient.defined() != again.defined())
      found("the same batch again gives no gradient of '" + name + "'");
    if (gradient.defined() && !((again - gradient).norm().item<double>() <=
                                kMost * std::max(gradient.norm().item<double>(), 1e-2 * overall)))
      found("the same batch again, after others: the gradient of '" + name + "' differs");
  }
}

// Checks that the forward did not modify any tensor of the batch.
void check_unchanged(const Batch& batch, const std::vector<at::Tensor>& kept) {
  for (size_t i = 0; i < kBatchMembers.size(); ++i)
    if (kept[i].defined() && !at::equal(batch.*kBatchMembers[i].tensor, kept[i]))
      found("the forward changes the batch's " + std::string(kBatchMembers[i].name) + " in place");
}

std::vector<at::Tensor> copies_of(const Batch& batch) {
  std::vector<at::Tensor> out;
  for (const BatchMember& member : kBatchMembers) {
    const at::Tensor& tensor = batch.*member.tensor;
    out.push_back(tensor.defined() ? tensor.clone() : at::Tensor());
  }
  return out;
}

// Runs the model with all members of a batch. Other kits report a model that refuses documents or padding.
void leaves_the_batch(BuiltModel& model, const ModelSite& site, Batch batch) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  batch.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous();
  for (const bool all : {false, true}) {
    if (all) {
      batch.documents = at::arange(rows + 1, at::kInt) * length;
      batch.padding = at::zeros({rows, length}, at::kBool);
    }
    batch = site.here(batch);
    const std::vector<at::Tensor> kept = copies_of(batch);
    try {
      (void)model.main_loss(batch);
    } catch (const Error& error) {
      if (!all || error.code() == ErrorCode::plugin_failed || error.code() == ErrorCode::internal) throw;
    }
    check_unchanged(batch, kept);
  }
}

}  // namespace

std::string keeps_nothing(const ModelSite& site) {
  BuiltModel model(site);
  const Batch batch = batch_of(site), other = batch_of(site, 3);
  leaves_the_batch(model, site, batch);
  const double first = model.forward(batch).sum().item<double>();
  const auto gradients = model.gradients(batch);
  (void)model.gradients(other);
  (void)model.main_loss(rows_from(other, 0, 1));
  near(model.forward(batch).sum().item<double>(), first, "the same batch again, after others");
  same_gradients(model.gradients(batch), gradients);
  near(model.main_loss(batch), model.main_loss(batch), "the same batch twice without gradients");
  near(model.main_loss(batch), first, "the same batch without gradients");
  return "";
}

// Sets padding at the end of each row, whose tokens must not affect the result.
std::string leaves_padding_out(const ModelSite& site) {
  BuiltModel model(site);
  Batch batch = batch_of(site);
  const int64_t length = batch.tokens.size(1), fill = length / 4;
  if (fill == 0) throw NotRun{"its sequences are too short for padding"};
  batch.padding = at::zeros_like(batch.tokens, at::kBool);
  batch.padding.narrow(1, length - fill, fill).fill_(true);
  batch.labels = batch.labels.masked_fill(batch.padding, Batch::kIgnore);
  Batch other = batch;
  other.tokens = batch.tokens.masked_fill(batch.padding, 0);
  const auto of = [&](const Batch& which) {
    const double loss = model.main_loss(which);
    const at::Tensor sums = model.side_sums();
    return std::pair(loss, sums.defined() ? sums.clone() : sums);
  };
  const auto [loss, sums] = of(batch);
  const auto [again, same] = of(other);
  near(again, loss, "with other padding tokens");
  if (sums.defined() &&
      !((sums - same).abs().max().item<double>() <= kMost * std::max(sums.abs().max().item<double>(), 1.0)))
    found("a metric or an auxiliary loss counts padding tokens (Batch::padding)");
  return "";
}

std::string separates_documents(const ModelSite& site) {
  BuiltModel model(site);
  const Batch rows = batch_of(site);
  const int64_t length = rows.tokens.size(1), cut = length / 2;
  if (cut == 0) throw NotRun{"its sequences are too short for two documents"};
  Batch packed = rows_from(rows, 0, 1), head = packed, tail = packed;
  packed.documents =
      at::tensor(std::vector<int>{0, static_cast<int>(cut), static_cast<int>(length)}, at::kInt);
  head.tokens = packed.tokens.narrow(1, 0, cut).contiguous();
  head.labels = packed.labels.narrow(1, 0, cut).contiguous();
  tail.tokens = packed.tokens.narrow(1, cut, length - cut).contiguous();
  tail.labels = packed.labels.narrow(1, cut, length - cut).contiguous();
  double together = 0;
  try {
    together = model.main_loss(packed);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed || error.code() == ErrorCode::internal) throw;
    throw NotRun{"the model refuses documents: " + error.message()};
  }
  near(together, model.main_loss(head) + model.main_loss(tail),
       "two documents in one row are not equal to two rows");
  Batch counted = rows_from(rows, 0, 2);
  counted.positions = at::arange(length, at::kLong).expand({2, length}).contiguous();
  counted = site.here(counted);
  near(model.main_loss(counted), model.main_loss(rows_from(rows, 0, 2)),
       "positions 0, 1, 2, ... are not equal to absent positions");
  return "";
}

std::string takes_its_longest_sequence(const ModelSite& site) {
  BuiltModel model(site);
  const ModelFacts facts = site.spec.facts();
  Rows rows = rows_for(site.spec);
  rows.sequence = std::min<int64_t>(facts.max_positions, 512);
  rows.rows = 1;
  Batch batch = rows_of(1, 0, 1, true, rows).front();
  batch.tokens[0][0] = facts.vocabulary - 1;
  batch.labels[0][0] = facts.vocabulary - 1;
  if (const double loss = model.main_loss(site.here(batch)); !std::isfinite(loss))
    found("the loss of a sequence of " + std::to_string(rows.sequence) + " tokens is " +
          std::to_string(loss));
  return std::to_string(rows.sequence) + " tokens";
}

}  // namespace heddle::kits
