// Expert parallelism: the ranks of ep hold different experts, and tokens travel to them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capacity.h"
#include "config.h"
#include "dispatcher.h"
#include "heddle/model/side_outputs.h"
#include "heddle/parallel/parallelizer.h"

namespace heddle::moe {

class ExpertParallel : public IParallelizer {
 public:
  explicit ExpertParallel(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{mesh} for experts that ep_size does not divide and widths that etp_size does not divide,
  // Error{config} for a model without experts and for fields of the block that the strategy cannot follow.
  void check(Units& units, const Sizes& sizes) override;
  // Splits the parameters of all experts along their first dim over ep, and along their width over etp; links
  // the dispatcher. With both sizes 1 links the capacity alone.
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
  // With a capacity: how many choices were dropped, and the fraction of all choices.
  std::vector<SideOutput*> side_outputs() override;

 private:
  void check_fields() const;
  void make_dispatchers(const DeviceMesh& mesh);
  Experts::Instead::LinkPointer link(const DeviceMesh& mesh);
  Experts::Instead::LinkPointer link_of_parts();
  const Dispatcher& dispatcher(int64_t choices, int ranks) const;
  std::vector<Placed> limit_alone(Units& units, const DeviceMesh& mesh);
  void tell_capacity(const DeviceMesh& mesh) const;
  struct Limited {
    model::Routing routing;
    int64_t most;  // choices of an expert; 0: no limit
  };
  Limited limited(const model::Routing& chosen, const Experts& experts, const Batch& batch) const;

  const Config config_;
  std::unique_ptr<Dispatcher> gathered_, all_to_all_;  // over ep
  std::unique_ptr<Dispatcher> joined_;                 // over etp, within these; null: experts are whole
  // Of all layers.
  Metric dropped_{"moe/dropped_choices", Combine::sum, {"dp_cp"}, 1, Shown::file};
  Metric dropped_fraction_{"moe/dropped_fraction", Combine::mean};
};

}  // namespace heddle::moe
