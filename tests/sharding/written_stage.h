// The sharding engine with buckets that record the calls they receive.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/sharding/stage.h"
#include "heddle/transport/threads.h"
#include "tests/toy_unit.h"

namespace heddle::sharding {

using Lines = std::vector<std::string>;

class WrittenWork final : public Work {
 public:
  WrittenWork(Lines& lines, std::string name) : lines_(lines), name_(std::move(name)) {}
  void wait() override { lines_.push_back("wait for " + name_); }

 private:
  Lines& lines_;
  std::string name_;
};

class WrittenGradients final : public Gradients {
 public:
  WrittenGradients(Lines& lines, std::string name) : lines_(lines), name_(std::move(name)) {}
  void begin_step() override {}
  void keep() override { ++kept; }
  std::unique_ptr<Work> reduce() override {
    lines_.push_back("reduce " + name_);
    return std::make_unique<WrittenWork>(lines_, "sum " + name_);
  }
  void reduced() override {}
  void place(std::span<const char> used) override {
    lines_.push_back("place " + name_ + (used[0] ? "" : ", unused"));
  }
  bool had(size_t) const override { return had_; }
  int kept = 0;
  bool had_ = true;

 private:
  Lines& lines_;
  std::string name_;
};

// A bucket of one parameter, whose name is a letter.
class WrittenBucket final : public Bucket {
 public:
  WrittenBucket(Lines& lines, const ParameterSlot& slot)
      : lines_(lines), name_(slot.name), leaf_(*slot.tensor) {
    if (slot.trainable()) set_gradients(std::make_unique<WrittenGradients>(lines, name_));
  }
  std::vector<Parameter> parameters() const override { return {{name_, leaf_, {}}}; }
  int64_t elements() const override { return leaf_.numel(); }
  bool transient() const override { return true; }
  std::unique_ptr<Work> gather() override {
    lines_.push_back("gather " + name_);
    if (fails) throw std::runtime_error("no memory for " + name_);
    return std::make_unique<WrittenWork>(lines_, name_);
  }
  bool gathers_beside() const override { return beside; }
  void free() override { lines_.push_back("free " + name_); }
  bool fails = false, beside = false;

 private:
  Lines& lines_;
  std::string name_;
  at::Tensor leaf_;
};

// Multiplies x by a parameter. Units with the same letter are tied, and F is frozen.
inline std::unique_ptr<Unit> times(Lines& lines, const std::string& name, at::Tensor weight) {
  return tests::unit_of(name, std::move(weight),
                        [&lines, name](const at::Tensor& of, const Tensors& in, const Batch&) {
                          lines.push_back("run " + name);
                          return in[0] * of;
                        });
}

struct Stage {
  // One unit per letter, named after its parameter.
  Stage(Lines& lines, const std::string& letters, const Policy& policy, Rendezvous& rendezvous,
        Reshard reshard = Reshard::after_forward) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp", 1}}, rendezvous, "test: world");
    Units units;
    for (const char letter : letters)
      units.push_back(
          times(lines, std::string(1, letter), at::full({2}, 2.0).set_requires_grad(letter != 'F')));
    std::vector<std::unique_ptr<Bucket>> buckets;
    for (const Slots& fresh : new_slots(units))
      for (const ParameterSlot& slot : fresh)
        seen.push_back(static_cast<WrittenBucket*>(
            buckets.emplace_back(std::make_unique<WrittenBucket>(lines, slot)).get()));
    const std::vector<Reshard> all(units.size(), reshard);
    engine = std::make_unique<ShardedStage>(Model(std::move(units), std::move(buckets), all, "mine"), policy,
                                            mesh, groups_over(mesh, {"dp", "", "dp"}));
  }
  at::Tensor forward() { return engine->forward({at::full({2}, 1.0)}, Batch())[0].sum(); }
  void step() {
    engine->expect_last_backward();
    forward().backward();
    engine->finish_gradients();
  }
  std::unique_ptr<ShardedStage> engine;
  std::vector<WrittenBucket*> seen;
};

inline Lines written(const std::function<void(Lines&, Rendezvous&)>& body) {
  Lines lines;
  ThreadWorld::run(1, [&](Rendezvous& alone) { body(lines, alone); });
  return lines;
}

inline Lines step_of(const std::string& letters, const Policy& policy,
                     Reshard reshard = Reshard::after_forward) {
  return written([&](Lines& lines, Rendezvous& rendezvous) {
    Stage(lines, letters, policy, rendezvous, reshard).step();
  });
}

inline std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace heddle::sharding
