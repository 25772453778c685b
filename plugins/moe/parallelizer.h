// Expert parallelism: the ranks of ep hold different experts, and tokens are sent to the ranks of their
// experts.
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
  // Throws Error{mesh} if ep_size does not divide the number of experts or etp_size their width, and
  // Error{config} for a model without experts and for fields of the block that the strategy does not support.
  void check(Units& units, const Sizes& sizes) override;
  // Splits the parameters of all experts by their first dim over ep and by their width over etp, and installs
  // the dispatcher. If both sizes are 1, only installs the capacity.
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
  // Counts the choices that exceed the capacity: their number, and their fraction of all choices.
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
    int64_t most;  // choices per expert; 0: no limit
  };
  Limited limited(const model::Routing& chosen, const Experts& experts, const Batch& batch) const;

  const Config config_;
  std::unique_ptr<Dispatcher> gathered_, all_to_all_;  // over ep
  std::unique_ptr<Dispatcher>
      joined_;  // over etp, for the tokens of gathered_ or all_to_all_; null: experts are whole
  // Metrics over all layers.
  Metric dropped_{"moe/dropped_choices", Combine::sum, {"dp_cp"}, 1, Shown::file};
  Metric dropped_fraction_{"moe/dropped_fraction", Combine::mean};
};

}  // namespace heddle::moe
