// Toy runs and what tests ask of them.
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
