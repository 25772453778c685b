// A parallelizer with its own axis, in its own view of the mesh.
#pragma once

#include <optional>
#include <vector>

#include "heddle/model/side_outputs.h"
#include "heddle/parallel/parallelizer.h"

namespace acme {

struct Config {};

// The axis `acme` uses ranks of data parallelism. Each of its ranks keeps a part of the rows of the
// feed-forward weights. They are gathered for each product, because the ranks have different samples.
class Acme : public heddle::IParallelizer {
 public:
  explicit Acme(Config) {}
  heddle::Needs needs() const override;
  void check(heddle::Units& units, const heddle::Sizes& sizes) override;
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& mesh) override;

  // Pads sequences to a multiple of eight tokens. Padding has no label, so it does not change the loss.
  std::optional<int> transform_order() const override { return 100; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh& mesh) override;
  std::vector<heddle::SideOutput*> side_outputs() override { return {&padded_}; }

 private:
  heddle::Metric padded_{"acme/padded", heddle::Combine::sum, {"dp_cp"}, 1, heddle::Shown::file};
};

}  // namespace acme
