// Toy runs and helpers for their tests.
#include "plugins/toy_training.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::tests {

Training toy(const std::string& strategy, std::vector<Axis> axes, const std::string& more, Toy shape) {
  Training run;
  run.strategy = strategy;
  run.section =
      strategy == "fsdp2" ? (more.find("mp_policy") == std::string::npos ? kFloat : "") + more : "{}";
  run.axes = std::move(axes);
  run.model.vocab_size = Toy::kVocabulary;
  run.make_units = [shape](int) { return toy_units(shape); };
  return run;
}

void on_toy_ranks(Training run, const std::function<void(const ToyRank&)>& body) {
  std::vector<Events> events;
  run.events = &events;
  int size = 1;
  for (const Axis& axis : run.axes) size *= axis.size;
  std::vector<std::vector<ToyUnit*>> seen(static_cast<size_t>(size));
  run.make_units = [&seen, make = run.make_units](int rank) {
    Units units = make(rank);
    for (size_t i = 0; i < units.size(); ++i) seen[rank].push_back(&toy_at(units, i));
    return units;
  };
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const int rank = mesh.rank("world");
    body({stages, mesh, seen[rank], events[rank]});
  });
}

Batch toy_batch() {
  Batch batch;
  batch.tokens = batch.labels = at::full({2, 3}, 4, at::kLong);
  return batch;
}

void toy_step(Stages& stages) {
  ParallelStage& stage = *stages.front();
  stage.expect_last_backward();
  stage.forward({}, toy_batch())[0].backward();
  stage.finish_gradients();
}

Events events_of(Training run) {
  std::vector<Events> events;
  run.events = &events;
  gradients(run);
  return events[0];
}

void write_forwards(Training& run, std::vector<Events>& events, const Toy& shape) {
  run.events = &events;
  run.make_units = [&events, shape](int rank) {
    Toy recorded = shape;
    recorded.events = &events[rank];
    return toy_units(recorded);
  };
}

Events story_of(Training run, const Toy& shape) {
  std::vector<Events> events;
  write_forwards(run, events, shape);
  gradients(run);
  Events out;
  for (const std::string& event : events[0]) out.push_back(event.substr(0, event.find(" dp")));
  return out;
}

int count(const Events& events, const std::string& start) {
  return static_cast<int>(std::count_if(events.begin(), events.end(),
                                        [&](const std::string& e) { return e.rfind(start, 0) == 0; }));
}

void expect_same(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-5, 1e-7)) << name;
}

void use_extra_where(Training& run, const std::vector<double>& used) {
  run.change_batch = [used](Batch& batch, int slice) {
    batch.extra = at::full({1}, used[slice], at::kFloat);
  };
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace heddle::tests
