// Distillation loss of a block of tokens, its gradient, and the autograd node of both.
#include "loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "heddle/mesh/communicator.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/batch.h"
#include "heddle/nn/linear.h"

namespace heddle::distill {
namespace {

using model::Gradients;

struct DistilledLossNode final : model::LayerNode {
  DistilledLossNode() : LayerNode("DistilledLossBackward") {}
  model::Saved first, second;  // gradients of hidden and weight, or of the logits

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor& scale = gradients[0];
    Gradients out(2);
    if (task_should_compute_output(0)) out[0] = scaled(first.unpack(), scale);
    if (num_outputs() > 1 && task_should_compute_output(1)) out[1] = scaled(second.unpack(), scale);
    out.resize(num_outputs());
    release_variables();  // scaled in place, so a second backward is impossible
    return out;
  }
  static at::Tensor scaled(at::Tensor x, const at::Tensor& by) { return x.mul_(by); }
  void release_variables() override {
    first.reset();
    second.reset();
  }
};

// Returns the rows of a block, as in lib/nn: 16 MiB of fp32 on the CPU, 256 MiB on a device. A block has four
// such arrays.
int64_t rows_of_block(const at::Tensor& rows, int64_t vocabulary, int64_t chunk) {
  if (chunk > 0) return chunk;
  const int64_t numbers = rows.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 26;
  return std::max<int64_t>(32, numbers / std::max<int64_t>(1, vocabulary));
}

// Labels of a block: 1 where the label counts (wide [rows, 1]), the label's column on this rank or 0, and 1
// if the column is on this rank (wide).
struct Labels {
  at::Tensor counted, index, here;
  Labels block(int64_t row, int64_t rows) const {
    return {counted.narrow(0, row, rows), index.narrow(0, row, rows), here.narrow(0, row, rows)};
  }
};

Labels read_labels(const at::Tensor& labels, const model::VocabularyPart* part, int64_t held,
                   at::ScalarType dtype) {
  const at::Tensor column = labels.reshape({-1, 1}), counts = column.ne(Batch::kIgnore);
  const at::Tensor local = column - (part == nullptr ? 0 : part->first);
  const at::Tensor here = counts.bitwise_and(local.ge(0)).bitwise_and(local.lt(held));
  return {counts.to(dtype), local * here, here.to(dtype)};
}

// Log-probabilities of a block: of the student, of both models at the temperature, and of the labels.
struct Logs {
  at::Tensor student, student_soft, teacher_soft, label;
};

Logs logs_of(const at::Tensor& student, const at::Tensor& teacher, const Labels& labels, double temperature) {
  Logs out;
  out.student = at::_log_softmax(student, 1, false);
  out.student_soft = temperature == 1 ? out.student : at::_log_softmax(student / temperature, 1, false);
  out.teacher_soft = at::_log_softmax(temperature == 1 ? teacher : teacher / temperature, 1, false);
  out.label = out.student.gather(1, labels.index);
  return out;
}

// Returns the log of the sum of exponentials, given each rank's maxima and its sums relative to them: [ranks,
// rows].
at::Tensor joined(const at::Tensor& peaks, const at::Tensor& sums) {
  const at::Tensor peak = peaks.amax(0);
  return (sums * (peaks - peak).exp_()).sum(0).log_().add_(peak).unsqueeze(1);
}

// All ranks add the same numbers in the same order, so all get the same bits.
Logs logs_of(const at::Tensor& student, const at::Tensor& teacher, const Labels& labels, double temperature,
             Communicator& ranks) {
  const at::Tensor soft = student / temperature, of_teacher = teacher / temperature;
  const at::Tensor peak = student.amax(1, true), soft_peak = soft.amax(1, true),
                   teacher_peak = of_teacher.amax(1, true);
  const at::Tensor label = student.gather(1, labels.index) * labels.here;
  const at::Tensor mine =
      at::cat({peak, (student - peak).exp_().sum(1, true), soft_peak, (soft - soft_peak).exp_().sum(1, true),
               teacher_peak, (of_teacher - teacher_peak).exp_().sum(1, true), label},
              1);
  at::Tensor all = at::empty({ranks.size(), mine.size(0), mine.size(1)}, mine.options());
  ranks.all_gather(all, mine)->wait();
  const auto of = [&](int64_t number) { return all.select(2, number); };
  const at::Tensor log_z = joined(of(0), of(1));
  return {student - log_z, soft - joined(of(2), of(3)), of_teacher - joined(of(4), of(5)),
          of(6).sum(0).unsqueeze(1) - log_z};
}

// Logits after a soft cap. `slope` is undefined without a cap.
struct Capped {
  at::Tensor logits, slope;
};

Capped capped(const at::Tensor& logits, double cap) {
  if (cap == 0) return {logits, {}};
  const at::Tensor tanh = (logits / cap).tanh_();
  return {tanh * cap, 1 - tanh * tanh};
}

class Blocks {
 public:
  Blocks(const HeadInput& student, const HeadInput& teacher, const at::Tensor& labels,
         const LossOptions& options)
      : student_(student), teacher_(teacher), options_(options) {
    const at::Tensor& rows = student.logits.defined() ? student.logits : student.hidden;
    wide_ = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    labels_ = read_labels(labels, options.part, student.columns(), wide_);
    const int64_t columns =
        options.part == nullptr
            ? student.columns()
            : (options.part->whole + options.part->ranks->size() - 1) / options.part->ranks->size();
    step_ = rows_of_block(rows, columns, options.chunk);
    tokens_ = rows.size(0);
    ce_ = at::zeros({1}, rows.options().dtype(wide_).requires_grad(false));
    kd_ = at::zeros_like(ce_);
  }

  // Computes the requested gradients: of hidden and weight, or of the logits.
  void run(bool of_first, bool of_second) {
    const bool from_logits = student_.logits.defined();
    if (of_first) first = at::empty_like(from_logits ? student_.logits : student_.hidden);
    for (int64_t row = 0; row < tokens_; row += step_) {
      const int64_t rows = std::min(step_, tokens_ - row);
      const at::Tensor d_logits = block(row, rows, of_first || of_second);
      if (!d_logits.defined()) continue;
      if (from_logits) {
        first.narrow(0, row, rows).copy_(d_logits);
        continue;
      }
      if (of_first) model::matrix_product_into(first.narrow(0, row, rows), d_logits, student_.weight);
      if (of_second) add_product(d_logits, student_.hidden.narrow(0, row, rows));
    }
    if (of_second && !second.defined()) second = at::zeros_like(student_.weight);
    if (options_.part != nullptr) sum_over_ranks(*options_.part->ranks);
  }

  Distilled sums() const {
    const double ratio = options_.ratio, squared = options_.temperature * options_.temperature;
    const at::Tensor kd = kd_ * squared;
    return {ce_ * (1 - ratio) + kd * ratio, ce_, kd};
  }

  at::Tensor first, second;

 private:
  static at::Tensor logits_of(const HeadInput& input, int64_t row, int64_t rows) {
    if (input.logits.defined()) return input.logits.narrow(0, row, rows);
    return model::matrix_product(input.hidden.narrow(0, row, rows), input.weight.t());
  }

  at::Tensor block(int64_t row, int64_t rows, bool with_gradient) {
    const Labels labels = labels_.block(row, rows);
    const at::Tensor logits = logits_of(student_, row, rows);
    const Capped student = capped(logits.to(wide_), student_.soft_cap);
    const at::Tensor teacher = capped(logits_of(teacher_, row, rows).to(wide_), teacher_.soft_cap).logits;
    const double temperature = options_.temperature, ratio = options_.ratio;
    const Logs logs = options_.part == nullptr
                          ? logs_of(student.logits, teacher, labels, temperature)
                          : logs_of(student.logits, teacher, labels, temperature, *options_.part->ranks);
    const at::Tensor target = logs.teacher_soft.exp();
    // A token to which the teacher gives probability 0 adds nothing: 0 log 0 is 0.
    const at::Tensor apart = (logs.teacher_soft - logs.student_soft).masked_fill_(target.eq(0), 0);
    kd_.add_(((target * apart).sum(1, true) * labels.counted).sum());
    if (ratio < 1) ce_.sub_((logs.label * labels.counted).sum());
    if (!with_gradient) return {};
    at::Tensor gradient = (logs.student_soft.exp() - target).mul_(ratio * temperature);
    if (ratio < 1) {
      gradient.add_(logs.student.exp(), 1 - ratio);
      gradient.scatter_add_(1, labels.index, labels.here * (ratio - 1));
    }
    gradient.mul_(labels.counted);
    if (student.slope.defined()) gradient.mul_(student.slope);
    return gradient.to(logits.scalar_type());
  }

  // Accumulates in the wide dtype if there are several blocks of 16-bit values.
  void add_product(const at::Tensor& d_logits, const at::Tensor& hidden) {
    const at::Tensor by = d_logits.t();
    if (!second.defined()) return void(second = model::matrix_product(by, hidden));
    if (d_logits.scalar_type() == wide_) return model::add_matrix_product(second, by, hidden);
    second = second.to(wide_).add_(model::matrix_product(by, hidden));
  }

  // Sums the divergence of each rank's columns. The cross entropy is already complete on every rank.
  void sum_over_ranks(Communicator& ranks) {
    at::Tensor all = at::empty({ranks.size()}, kd_.options());
    ranks.all_gather(all, kd_)->wait();
    kd_ = all.sum().view({1});
  }

  const HeadInput &student_, &teacher_;
  const LossOptions& options_;
  at::ScalarType wide_ = at::kFloat;
  Labels labels_;
  int64_t step_ = 1, tokens_ = 0;
  at::Tensor ce_, kd_;
};

HeadInput cast_for_products(const HeadInput& input) {
  model::Autocast* autocast = model::Autocast::active();
  if (autocast == nullptr || input.logits.defined()) return input;
  return {autocast->value(input.hidden), autocast->weight(input.weight), {}, input.soft_cap};
}

}  // namespace

Distilled distilled_loss(const HeadInput& student, const HeadInput& teacher, const at::Tensor& labels,
                         const LossOptions& options) {
  const bool from_logits = student.logits.defined();
  const at::Tensor &input = from_logits ? student.logits : student.hidden, weight = student.weight;
  const model::Region* region = model::Region::active();
  const bool recording = at::GradMode::is_enabled() && (region == nullptr || !region->drops_values());
  const bool of_input = recording && input.requires_grad(),
             of_weight = recording && !from_logits && weight.requires_grad();
  Distilled out;
  at::Tensor first, second;
  {
    const model::BelowAutograd below;
    const HeadInput cast = cast_for_products(student), of_teacher = cast_for_products(teacher);
    Blocks blocks(cast, of_teacher, labels, options);
    blocks.run(of_input, of_weight);
    out = blocks.sums();
    if (of_input) first = blocks.first.to(input.scalar_type());
    if (of_weight) second = blocks.second.to(weight.scalar_type());
  }
  const bool needs_gradient = from_logits ? torch::autograd::compute_requires_grad(input)
                                          : torch::autograd::compute_requires_grad(input, weight);
  if (!needs_gradient) return out;
  const auto node = from_logits ? model::make_node<DistilledLossNode>(input)
                                : model::make_node<DistilledLossNode>(input, weight);
  node->first.save(first);
  node->second.save(second);
  torch::autograd::set_history(out.loss, node);
  return out;
}

}  // namespace heddle::distill
