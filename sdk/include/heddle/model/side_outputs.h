// What a model produces besides its outputs: auxiliary losses and metrics, each with a name.
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

// What the sum of an auxiliary loss over microbatches and ranks is divided by, in its gradient and its
// report.
enum class LossDivisor {
  label_tokens,  // as for the main loss: of the global batch. For a loss that is a sum over tokens
  // Of the step, of all data-parallel ranks, without those that are only padding. For a loss that is a mean
  // over a microbatch.
  microbatches,
  one
};
enum class Combine { sum, mean, max };
// Where a value is shown besides StepReport::side_values: in training.jsonl, on the progress line, and in the
// lines of validation sets.
enum class Shown { nowhere, file, file_and_line, validation_too };

struct SideSpec {
  // "router/load": a group, a slash, then letters, digits and _ - . Or a part of the loss: "soft_loss".
  std::string name;
  bool is_loss = false;
  LossDivisor divisor = LossDivisor::one;  // of a loss
  Combine combine = Combine::sum;          // a loss is a sum
  // Mesh axes along which ranks hold different parts of the value. Along any other axis every rank has the
  // same value, which counts once. Stages of a pipeline always count together.
  std::vector<std::string> axes = {"dp_cp"};
  int64_t size = 1;  // elements of the value
  Shown shown = Shown::file_and_line;
  bool operator==(const SideSpec&) const = default;
};

// A declared loss or metric; outputs of one name are combined. Owned by a Module (add_side_output) or a
// parallelizer (IParallelizer::side_outputs), which outlives the run's stages.
class HEDDLE_API SideOutput {
 public:
  // Throws Error{input} for a name or a size that is not allowed.
  explicit SideOutput(SideSpec spec);
  SideOutput(const SideOutput&) = delete;
  SideOutput& operator=(const SideOutput&) = delete;
  const SideSpec& spec() const { return spec_; }

 private:
  friend class SideLayout;
  friend class SideOutputs;
  SideSpec spec_;
  int place_ = -1;  // in the layout of the run
};

class HEDDLE_API AuxiliaryLoss : public SideOutput {
 public:
  explicit AuxiliaryLoss(std::string name, LossDivisor divisor = LossDivisor::label_tokens,
                         std::vector<std::string> axes = {"dp_cp"}, Shown shown = Shown::file_and_line);

  // Returns x. `loss` (one element, floating) is this rank's part of the microbatch's loss; the backward that
  // reaches x continues into it, with 1 / divisor as its gradient, as if it had been added to the main loss
  // (the method of Megatron-Core's MoEAuxLossAutoScaler). So x must lead to the main loss, and the loss is
  // not sent between pipeline stages. Throws Error{input} if it needs a gradient but is not collected.
  at::Tensor add(const at::Tensor& x, const at::Tensor& loss, const Batch& batch) const;
};

class HEDDLE_API Metric : public SideOutput {
 public:
  Metric(std::string name, Combine combine, std::vector<std::string> axes = {"dp_cp"}, int64_t size = 1,
         Shown shown = Shown::file_and_line);

  // Adds this rank's value of a microbatch, without its gradient and without waiting for the device.
  // `weight`: of a mean, for example the number of tokens. Does nothing if values are not collected, or while
  // a unit is recomputed.
  void add(const at::Tensor& value, const Batch& batch, double weight = 1) const;
};

// The side outputs of a run, the same on every rank, and the positions of their values.
class HEDDLE_API SideLayout {
 public:
  struct Entry {
    SideSpec spec;
    int64_t begin = 0;   // among the sums, or the maxima; the weight of a mean follows it
    int64_t report = 0;  // among the reported values
  };
  // Throws Error{plugin_conflict} if another output of that name is declared differently.
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

// The values of one step, the same on every rank.
struct HEDDLE_API SideValues {
  std::shared_ptr<const SideLayout> layout;  // null or empty: none
  at::Tensor values;                         // fp64 [layout->reported()]; nan where nothing was added

  // fp64 [size]; undefined: the run has no such output. Does not wait for the device.
  at::Tensor find(const std::string& name) const;
};

// Collects what one rank's stages add in one step. A host with a loop of its own puts one into
// Batch::side_outputs.
class HEDDLE_API SideOutputs {
 public:
  // What the gradient of a loss is divided by; called in its backward.
  using Divide = std::function<double(LossDivisor)>;
  SideOutputs(std::shared_ptr<const SideLayout> layout, c10::Device device);

  // Starts a new step, or an evaluation (no `divide`).
  void begin(Divide divide);
  const std::shared_ptr<const SideLayout>& layout() const { return layout_; }
  const at::Tensor& sums() const { return sums_; }      // fp64 [layout->sums()]
  const at::Tensor& maxima() const { return maxima_; }  // fp64 [layout->maxima()]; -inf: nothing was added

  // While this thread runs a forward a second time (activation checkpointing): values count once.
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
  std::string name;             // of the parameter
  at::Tensor tensor;            // what after_update writes here is in the model before the next forward
  std::vector<int64_t> offset;  // of the box in the whole parameter
};

// The argument of after_update.
struct Updated {
  const SideValues& values;  // of the step, over all ranks
  // fp32 [1] on the parameters' device: 1 where the update was skipped because the loss or the norm was not
  // finite.
  at::Tensor skipped;
  // Of the module's own slots that do not train, in their order; a slot may have several boxes, and none on
  // this rank. Empty for parallelizers and units.
  std::span<const FrozenPart> frozen = {};
};

}  // namespace heddle
