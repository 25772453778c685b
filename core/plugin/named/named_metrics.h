// A sink of metrics whose exceptions carry the plugin's name.
#pragma once

#include <memory>
#include <utility>

#include "core/plugin/guard.h"
#include "heddle/plugin/metrics.h"

namespace heddle::plugin {

class NamedMetrics : public IMetrics {
 public:
  NamedMetrics(Author author, std::unique_ptr<IMetrics> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  void start(const MetricsRun& run) override {
    guarded(author_, "started its metrics", [&] { inner_->start(run); });
  }
  void record(const MetricsRecord& record) override {
    guarded(author_, "took a record of metrics", [&] { inner_->record(record); });
  }
  void finish() override {
    guarded(author_, "finished its metrics", [&] { inner_->finish(); });
  }

 private:
  Author author_;
  std::unique_ptr<IMetrics> inner_;
};

}  // namespace heddle::plugin
