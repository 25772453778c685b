// A sink of metrics whose exceptions carry the plugin's name.
#pragma once

#include "core/plugin/named/named_object.h"
#include "heddle/plugin/metrics.h"

namespace heddle::plugin {

class NamedMetrics : public NamedObject<IMetrics> {
 public:
  using NamedObject::NamedObject;
  void start(const MetricsRun& run) override {
    attributed(
        author_, "started its metrics", [&] { inner_->start(run); }, Keep::nothing);
  }
  void record(const MetricsRecord& record) override {
    attributed(
        author_, "took a record of metrics", [&] { inner_->record(record); }, Keep::nothing);
  }
  void finish() override {
    attributed(
        author_, "finished its metrics", [&] { inner_->finish(); }, Keep::nothing);
  }
};

}  // namespace heddle::plugin
