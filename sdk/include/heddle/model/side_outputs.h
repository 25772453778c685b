// Auxiliary losses and metrics that a model produces besides its outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle {

// The divisor of an auxiliary loss, in its gradient and its report. It divides the sum over microbatches and
// ranks.
enum class LossDivisor {
  label_tokens,  // label tokens of the global batch, as for the main loss; for a sum over tokens
  // Microbatches of the step on all data-parallel ranks, except those that are only padding. For a loss that
  // is a mean over a microbatch.
  microbatches,
  one
};
// How to combine the values of microbatches and ranks.
enum class Combine { sum, mean, max };
// Places that show a value besides StepReport::side_values: in training.jsonl, also on the progress line,
// also in the lines of validation sets.
enum class Shown { nowhere, file, file_and_line, validation_too };

// The properties of a loss or metric.
struct SideSpec {
  // "router/load": a group, a slash, then letters, digits, `_`, `-` and `.`. Or a term of the loss:
  // "soft_loss".
  std::string name;
  bool is_loss = false;
  LossDivisor divisor = LossDivisor::one;  // divisor of a loss
  Combine combine = Combine::sum;          // sum for a loss
  // Mesh axes along which ranks have different parts of the value, which are combined. Along other axes all
  // ranks have the same value, which counts once. Pipeline stages are always combined.
  std::vector<std::string> axes = {"dp_cp"};
  int64_t size = 1;  // number of elements
  Shown shown = Shown::file_and_line;
  bool operator==(const SideSpec&) const = default;
};

// A declared loss or metric. Outputs with the same name are combined. Owned by a Module (add_side_output) or
// by a parallelizer (IParallelizer::side_outputs) that outlives the stages of the run.
class HEDDLE_API SideOutput {
 public:
  // Throws Error{input} for an invalid name or size.
  explicit SideOutput(SideSpec spec);
  SideOutput(const SideOutput&) = delete;
  SideOutput& operator=(const SideOutput&) = delete;
  const SideSpec& spec() const { return spec_; }

 private:
  friend class SideLayout;
  friend class SideOutputs;
  SideSpec spec_;
  int place_ = -1;  // index in the layout of the run
};

// A loss that is added to the main loss, such as a load-balancing loss.
class HEDDLE_API AuxiliaryLoss : public SideOutput {
 public:
  explicit AuxiliaryLoss(std::string name, LossDivisor divisor = LossDivisor::label_tokens,
                         std::vector<std::string> axes = {"dp_cp"}, Shown shown = Shown::file_and_line);

  // Adds this rank's part of the loss of a microbatch and returns x. loss: one floating-point element. The
  // backward through x continues into `loss` with the gradient 1 / divisor, as if the loss had been added to
  // the main loss (the method of Megatron-Core's MoEAuxLossAutoScaler). Therefore the main loss must depend
  // on x, and the loss is not sent between pipeline stages. Throws Error{input} if the loss requires a
  // gradient but is not collected.
  at::Tensor add(const at::Tensor& x, const at::Tensor& loss, const Batch& batch) const;
};

// A value that is reported, without gradient.
class HEDDLE_API Metric : public SideOutput {
 public:
  Metric(std::string name, Combine combine, std::vector<std::string> axes = {"dp_cp"}, int64_t size = 1,
         Shown shown = Shown::file_and_line);

  // Adds this rank's value of a microbatch, without gradient and without waiting for the device. weight: the
  // weight in a mean, such as the number of tokens. Does nothing if values are not collected or while a unit
  // is recomputed.
  void add(const at::Tensor& value, const Batch& batch, double weight = 1) const;
};

// The side outputs of a run, equal on every rank, and the positions of their values.
class HEDDLE_API SideLayout {
 public:
  struct Entry {
    SideSpec spec;
    int64_t begin = 0;   // index among the sums or the maxima; the weight of a mean follows
    int64_t report = 0;  // index among the reported values
  };
  // Throws Error{plugin_conflict} if an output with the same name is declared differently.
  void add(SideOutput& output);
  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  int64_t sums() const { return sums_; }
  int64_t maxima() const { return maxima_; }
  int64_t reported() const { return reported_; }

 private:
  std::vector<Entry> entries_;  // in the order of the model
  int64_t sums_ = 0, maxima_ = 0, reported_ = 0;
};

// The values of one step, equal on every rank.
struct HEDDLE_API SideValues {
  std::shared_ptr<const SideLayout> layout;  // null or empty if there are no outputs
  at::Tensor values;                         // fp64 [layout->reported()]; NaN where nothing was added

  // Returns fp64 [size], or an undefined tensor if the run has no such output. Does not wait for the device.
  at::Tensor find(const std::string& name) const;
};

// Collects the values that one rank's stages add in one step. A host with its own loop sets
// Batch::side_outputs.
class HEDDLE_API SideOutputs {
 public:
  // Returns the divisor of a loss's gradient. Called in its backward.
  using Divide = std::function<double(LossDivisor)>;
  SideOutputs(std::shared_ptr<const SideLayout> layout, c10::Device device);

  // Starts a step, or, without `divide`, an evaluation.
  void begin(Divide divide);
  const std::shared_ptr<const SideLayout>& layout() const { return layout_; }
  const at::Tensor& sums() const { return sums_; }  // fp64 [layout->sums()]
  // Fp64 [layout->maxima()]; -Inf where nothing was added.
  const at::Tensor& maxima() const { return maxima_; }

  // A scope in which this thread repeats a forward (activation checkpointing), so that added values count
  // once.
  class HEDDLE_API Again {
   public:
    Again();
    ~Again();
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;
  };

 private:
  friend class AuxiliaryLoss;
  friend class Metric;
  friend struct AuxiliaryLossNode;
  void add(const SideOutput& output, const at::Tensor& value, double weight);

  std::shared_ptr<const SideLayout> layout_;
  c10::Device device_;
  at::Tensor sums_, maxima_;
  Divide divide_;
};

// This rank's box of a slot that does not train.
struct FrozenPart {
  std::string name;             // name of the parameter
  at::Tensor tensor;            // this box; what after_update() writes is used from the next forward on
  std::vector<int64_t> offset;  // offset of the box in the whole parameter
};

// The argument of AfterUpdate::after_update().
struct Updated {
  const SideValues& values;  // values of the step over all ranks
  // fp32 [1] on the parameters' device: 1 if the update was skipped because the loss or the norm was not
  // finite.
  at::Tensor skipped;
  // Boxes of the module's own slots that do not train, in the order of the slots. A slot may have no box or
  // several boxes on this rank. Empty for parallelizers and units.
  std::span<const FrozenPart> frozen = {};
};

}  // namespace heddle
