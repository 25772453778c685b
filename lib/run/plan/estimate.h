// Coarse estimates of a layout's time and memory, which order the dry steps of a search.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "lib/cost/machine.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/plan/layout.h"

namespace heddle {

// Figures of a model.
struct ModelFigures {
  // Numbers of elements. `outer` are those of units before and after the layers, such as embeddings.
  double parameters = 0, of_experts = 0, outer = 0;
  double flops_per_token = 0;
  double hidden = 0;
  double intermediate = 0;  // width of a layer's MLP; in a mixture, of the experts that a token selects
  int64_t layers = 0, heads = 0, key_value_heads = 0;
  int64_t experts = 0, top_k = 0, expert_width = 0;
  double unsplit = 0;  // share of the parameters besides experts that tensor parallelism does not split
};
ModelFigures figures_of(const PreparedModel& model, int64_t row_length);

// Bytes of parameters, gradients and optimizer state of the whole model under a strategy.
struct StateBytes {
  double whole = 0;    // replicated over data-parallel ranks
  double divided = 0;  // sharded over them
};

// Estimates layouts of one strategy. The space must outlive it.
struct LayoutEstimate {
  const LayoutSpace& space;
  const ModelFigures& model;
  const MachineFile& machine;
  c10::ScalarType dtype;  // of products
  StateBytes state;

  // Lower bound of the memory on the rank of the first stage: parameters, gradients, optimizer state, and the
  // inputs that its layers keep for the backward.
  double least_memory(const Layout& layout) const;
  // Estimated peak on that rank.
  double memory(const Layout& layout) const;
  // Estimated seconds of a step: computation at the machine's efficiency, the bubble, and the bytes of each
  // kind of parallelism.
  double seconds(const Layout& layout) const;
};

}  // namespace heddle
