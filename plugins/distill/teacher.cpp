// Units and heads of the teacher and the student, and the distillation loss at their end.
#include "teacher.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <span>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::distill {
namespace {

// The batch for the teacher: without counts and random numbers.
Batch quiet(const Batch& batch) {
  Batch out = batch;
  out.draws = at::Tensor();
  out.weight_gradients = nullptr;
  out.side_outputs = nullptr;
  return out;
}

// Returns hidden states and the head's weight, or the logits if the head computes more than their product.
HeadInput input_of(const at::Tensor& hidden, Linear& head, const Batch& batch, const TokenLoss& loss) {
  HeadInput out{{}, {}, {}, loss.soft_cap()};
  if (loss.split && head.children().empty()) {
    out.hidden = loss.split->enter(hidden, batch);
    out.weight = head.weight;
  } else if (loss.split) {
    const auto own = [](std::span<Linear* const> layers, const at::Tensor& x, const Batch& within) {
      return model::products(layers, x, within);
    };
    Linear* const layer = &head;
    out.logits = head.instead.call(own, std::span<Linear* const>(&layer, 1), hidden, batch)[0];
  } else if (head.plain() && !head.bias.defined()) {
    out.hidden = hidden;
    out.weight = head.weight;
  } else {
    out.logits = head.call(hidden, batch);
  }
  return out;
}

// Holds a tensor until the end of the scope.
class Held {
 public:
  Held(at::Tensor& place, at::Tensor value) : place_(place) { place_ = std::move(value); }
  ~Held() { place_ = at::Tensor(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  at::Tensor& place_;
};

at::Tensor take_last(Tensors& tensors) {
  at::Tensor last = std::move(tensors.back());
  tensors.pop_back();
  return last;
}

}  // namespace

Tensors TeacherUnit::forward(Tensors inputs, const Batch& batch) {
  const at::AutoGradMode without_gradients(false);
  return ModuleUnit::forward(std::move(inputs), quiet(batch));
}

Tensors StudentUnit::forward(Tensors inputs, const Batch& batch) {
  at::Tensor passing = take_last(inputs);
  Tensors out = ModuleUnit::forward(std::move(inputs), batch);
  out.push_back(std::move(passing));
  return out;
}

Tensors LastUnit::forward(Tensors inputs, const Batch& batch) {
  const Held held(teacher_->hidden, take_last(inputs));
  return ModuleUnit::forward(std::move(inputs), batch);
}

TeacherHead::TeacherHead(std::unique_ptr<ModuleUnit> unit, const model::LossHead& head, const Config& config)
    : unit_(std::move(unit)),
      head_(head),
      ratio_(config.kd_ratio),
      words_(config.kd_loss_fn),
      ce_("ce_loss", LossDivisor::label_tokens, {"dp_cp"}, Shown::validation_too),
      kd_("kd_loss", LossDivisor::label_tokens, {"dp_cp"}, Shown::validation_too) {
  for (const auto& [name, child] : head_.module->children()) add_child(name, *child);
  add_side_output(ce_);
  add_side_output(kd_);
  head_.loss->instead.add(TokenLoss::Instead::around(
      "distill", 0, [this](const at::Tensor& x, Linear& by, const Batch& batch, const auto&) {
        found_ = input_of(x, by, batch, *head_.loss);
        return at::zeros({1}, x.options().dtype(at::kFloat));
      }));
}

at::Tensor TeacherHead::forward(at::Tensor x, const Batch& batch) {
  return unit_->module()->call(std::move(x), batch);
}

at::Tensor TeacherHead::loss(const at::Tensor& x, Linear& head, const Batch& batch, const TokenLoss& of) {
  const HeadInput student = input_of(x, head, batch, of);
  {
    const at::AutoGradMode without_gradients(false);
    call(hidden, quiet(batch));
  }
  const HeadInput teacher = std::exchange(found_, {});
  if (student.columns() != teacher.columns())
    throw Error(ErrorCode::config, "distributed.tp_plan",
                "the student's head has " + std::to_string(student.columns()) +
                    " vocabulary rows on this rank, but the teacher's head has " +
                    std::to_string(teacher.columns()),
                "give both heads the same style in the plan; the teacher's paths begin with teacher.");
  LossOptions options{ratio_, words_.temperature, words_.chunk_size};
  if (of.split) options.part = &of.split->part;
  const Distilled sums = distilled_loss(student, teacher, batch.labels, options);
  kd_.add(sums.loss, sums.kd, batch);
  return ce_.add(sums.loss, sums.ce, batch);
}

}  // namespace heddle::distill
