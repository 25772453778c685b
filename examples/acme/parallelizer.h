// A parallelizer with an axis of its own, in a view of its own.
#pragma once

#include <optional>
#include <vector>

#include "heddle/model/side_outputs.h"
#include "heddle/parallel/parallelizer.h"

namespace acme {

struct Config {};

// `acme` takes its ranks from those of data parallelism. Each rank of it keeps a part of the rows of the
// feed-forward weights; they are gathered for each product, as the ranks have different samples.
class Acme : public heddle::IParallelizer {
 public:
  explicit Acme(Config) {}
  heddle::Needs needs() const override;
  void check(heddle::Units& units, const heddle::Sizes& sizes) override;
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& mesh) override;

  // Pads sequences to a multiple of eight tokens. What is added has no label, so it changes no loss.
  std::optional<int> transform_order() const override { return 100; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh& mesh) override;
  std::vector<heddle::SideOutput*> side_outputs() override { return {&padded_}; }

 private:
  heddle::Metric padded_{"acme/padded", heddle::Combine::sum, {"dp_cp"}, 1, heddle::Shown::file};
};

}  // namespace acme
