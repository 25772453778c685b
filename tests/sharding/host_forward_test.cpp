// Order of gathers, frees and reductions when the host drives the forward. Values are compared in
// tests/plugins/agreement/host_forward_test.cpp.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "sharding/written_stage.h"

namespace heddle::sharding {
namespace {

using ::testing::HasSubstr;

// Runs a stage in the order of a script: "c(ab)" runs the units a and b inside of c. Digits are indices of
// units.
class Host {
 public:
  Host(Lines& lines, const std::string& list, Rendezvous& alone, Policy policy = {})
      : lines_(lines), list_(list), stage_(lines, list, policy, alone) {}

  ParallelStage& engine() { return *stage_.engine; }
  at::Tensor forward(const std::string& script) {
    engine().begin_forward(Batch());
    at::Tensor x = at::full({2}, 1.0);
    std::vector<size_t> open;
    for (size_t i = 0; i < script.size(); ++i) {
      if (script[i] == ')') {
        lines_.push_back("end " + std::string(1, list_[open.back()]));
        x = end(open.back(), x * leaf(open.back()));
        open.pop_back();
        continue;
      }
      const size_t unit = index(script[i]);
      engine().before(unit);
      lines_.push_back("run " + std::string(1, list_[unit]));
      x = x * leaf(unit);
      if (i + 1 < script.size() && script[i + 1] == '(')
        ++i, open.push_back(unit);
      else
        x = end(unit, x);
    }
    engine().end_forward();
    return x.sum();
  }
  void step(const std::string& script, int forwards = 1) {
    at::Tensor loss = forward(script);
    for (int i = 1; i < forwards; ++i) loss = loss + forward(script);
    engine().expect_last_backward();
    torch::autograd::backward({loss}, {});
    engine().finish_gradients();
  }
  size_t index(char unit) const { return unit <= '9' ? static_cast<size_t>(unit - '0') : list_.find(unit); }

 private:
  at::Tensor leaf(size_t unit) {
    for (WrittenBucket* bucket : stage_.seen)
      if (bucket->parameters().front().name[0] == list_[unit]) return bucket->parameters().front().leaf;
    throw std::logic_error("no such unit");
  }
  at::Tensor end(size_t unit, at::Tensor x) {
    engine().after(unit, x.requires_grad() ? Tensors{x} : Tensors{});
    return x;
  }

  Lines& lines_;
  std::string list_;
  Stage stage_;
};

// Returns the lines of the last of `steps` equal steps.
Lines last_step(const std::string& list, const std::string& script, int steps, int forwards = 1) {
  return written([&](Lines& lines, Rendezvous& alone) {
    Host host(lines, list, alone);
    for (int i = 0; i < steps; ++i) {
      lines.clear();
      host.step(script, forwards);
    }
  });
}

std::ptrdiff_t at_line(const Lines& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) - lines.begin();
}

std::ptrdiff_t last_with(const Lines& lines, const std::string& start) {
  return lines.rend() - std::find_if(lines.rbegin(), lines.rend(),
                                     [&](const std::string& line) { return line.rfind(start, 0) == 0; });
}

std::string error_of(const std::function<void(Host&)>& body) {
  std::string out;
  written([&](Lines& lines, Rendezvous& alone) {
    Host host(lines, "abc", alone);
    out = refusal([&] { body(host); });
  });
  return out;
}

// Sorts the lines that fill shards, because shards are filled in the stage's order, not in execution order.
Lines with_sorted_places(Lines lines) {
  const auto is_place = [](const std::string& line) { return line.rfind("place ", 0) == 0; };
  std::sort(std::find_if(lines.begin(), lines.end(), is_place), lines.end());
  return lines;
}

TEST(HostForward, GathersAndReducesAsAModelOfTheOrderThatItFound) {
  EXPECT_EQ(last_step("abc", "abc", 2), step_of("abc", {}));
  EXPECT_EQ(last_step("abc", "cab", 2), with_sorted_places(step_of("cab", {})));
  EXPECT_EQ(last_step("abcd", "dcba", 3), with_sorted_places(step_of("dcba", {})));
}

TEST(HostForward, GathersOneUnitAtATimeWhileItFindsTheOrder) {
  Lines lines = last_step("ab", "ba", 1);
  lines.resize(8);
  EXPECT_EQ(lines, (Lines{"gather b", "wait for b", "run b", "free b", "gather a", "wait for a", "run a",
                          "free a"}));
}

TEST(HostForward, PlacesAUnitThatDidNotRunBehindItsPredecessor) {
  const Lines lines = written([](Lines& written, Rendezvous& alone) {
    Host host(written, "abc", alone);
    host.step("ca");
    written.clear();
    host.step("ca");
  });
  EXPECT_LT(at_line(lines, "gather a"), at_line(lines, "gather b"));
  EXPECT_EQ(at_line(lines, "run b"), static_cast<std::ptrdiff_t>(lines.size()));
  EXPECT_LT(at_line(lines, "reduce b"), at_line(lines, "reduce a"));  // the gradient of an unused unit is 0
}

TEST(HostForward, KeepsAUnitAroundOthersWholeToTheEndOfTheBackward) {
  for (const int steps : {1, 3}) {
    Lines lines = last_step("rab", "r(ab)", steps);
    if (steps == 1)  // ranks agree on the order after the first forward and then free all units
      lines.erase(lines.begin(), lines.begin() + at_line(lines, "free r") + 1);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "gather r"), 1);
    EXPECT_LT(at_line(lines, "gather r"), at_line(lines, "gather b"));
    EXPECT_GT(at_line(lines, "free r"), last_with(lines, "gather "));
  }
}

// The inner unit shares a parameter with the unit around it.
TEST(HostForward, KeepsParametersOfAnOpenUnit) {
  for (const bool gradients : {true, false}) {
    const at::AutoGradMode mode(gradients);
    const Lines lines = written([](Lines& all, Rendezvous& alone) {
      Host host(all, "caad", alone);
      for (int i = 0; i < 3; ++i) {
        host.forward("01(2)3");
        host.engine().reshard();
      }
    });
    bool open = false;
    for (const std::string& line : lines) {
      open = (open || line == "run a") && line != "end a";
      EXPECT_FALSE(open && line == "free a");
    }
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "run a"), 6);
  }
}

TEST(HostForward, ReducesNothingBeforeTheEndOfABackwardOfTwoForwards) {
  const Lines lines = last_step("abc", "abc", 2, /*forwards=*/2);
  EXPECT_GT(at_line(lines, "reduce c"), last_with(lines, "gather "));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "reduce a"), 1);
}

// A unit is freed once the backward has passed it, and gathered again for the backward of the next forward.
// So no unit stays gathered during the whole backward.
TEST(HostForward, GathersEachUnitAgainForEachForwardOfABackward) {
  const Lines lines = last_step("abc", "abc", 2, /*forwards=*/2);
  for (const std::string unit : {"a", "b", "c"})  // two forwards and two backwards
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "gather " + unit), 4) << unit;
}

TEST(HostForward, GathersAUnitForEachUse) {
  const Lines lines = last_step("ab", "aba", 2);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "run a"), 2);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "reduce a"), 1);
  EXPECT_GT(at_line(lines, "reduce a"), last_with(lines, "gather "));
}

TEST(HostForward, RefusesABackwardAfterTheLastOne) {
  written([](Lines& lines, Rendezvous& alone) {
    Stage stage(lines, "ab", {}, alone);  // refused also if forward() runs the units
    stage.engine->expect_last_backward();
    const at::Tensor loss = stage.forward();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
    EXPECT_THAT(
        refusal([&] { torch::autograd::backward({loss}, {}); }),
        HasSubstr("error[input] mine: a backward follows the one that was announced as the last of the "
                  "step\n  hint: call expect_last_backward() before the last backward only, and "
                  "finish_gradients() after it"));
  });
}

TEST(HostForward, RefusesCallsThatDoNotFit) {
  EXPECT_THAT(error_of([](Host& host) { host.engine().before(0); }),
              HasSubstr("a unit runs outside of a forward\n  hint: call begin_forward() first"));
  EXPECT_THAT(error_of([](Host& host) {
                host.step("abc");
                host.engine().before(1);
              }),
              HasSubstr("the unit 'b' runs outside of a forward"));
  EXPECT_THAT(
      error_of([](Host& host) {
        host.engine().begin_forward(Batch());
        host.engine().begin_forward(Batch());
      }),
      HasSubstr("a forward begins before the last one has ended\n  hint: call end_forward() after each"));
  EXPECT_THAT(error_of([](Host& host) {
                host.engine().begin_forward(Batch());
                host.engine().before(7);
              }),
              HasSubstr("there is no unit 7: the stage has 3"));
  EXPECT_THAT(error_of([](Host& host) {
                host.engine().begin_forward(Batch());
                host.engine().after(1, {});
              }),
              HasSubstr("the unit 'b' ends and did not begin\n  hint: call before() of each unit first"));
  EXPECT_THAT(error_of([](Host& host) { host.forward("a(a)"); }),
              HasSubstr("the unit 'a' runs inside itself"));
  EXPECT_THAT(error_of([](Host& host) {
                host.step("abc");
                host.forward("acb");
              }),
              HasSubstr("the unit 'b' runs after 'c', but in the first forward its last use was before it\n"
                        "  hint: run units in the order of the first forward, as often at most; "));
  EXPECT_THAT(error_of([](Host& host) {
                host.step("abc");
                host.engine().forward({at::full({2}, 1.0)}, Batch());
              }),
              HasSubstr("forward() of a stage whose units a host runs"));
}

TEST(HostForward, FreesWhatAForwardGatheredThatThrew) {
  const Lines lines = written([](Lines& all, Rendezvous& alone) {
    Host host(all, "abc", alone);
    host.step("a(bc)");
    all.clear();
    host.engine().begin_forward(Batch());
    host.engine().before(0);
    host.engine().abandon_forward();
    EXPECT_EQ(std::count(all.begin(), all.end(), "free a"), 1);
    all.clear();
    host.step("a(bc)");
  });
  EXPECT_LT(at_line(lines, "gather a"), at_line(lines, "run a"));
}

}  // namespace
}  // namespace heddle::sharding
