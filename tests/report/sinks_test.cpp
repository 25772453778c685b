// Records that a run sends to metrics plugins.
#include "lib/report/sinks.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

// Records the calls in a list, and throws on request.
struct Recorder : IMetrics {
  Recorder(std::vector<std::string>& lines, std::string fails) : lines(lines), fails(std::move(fails)) {}
  void start(const MetricsRun& run) override { add("start " + std::to_string(run.done_steps)); }
  void record(const MetricsRecord& record) override {
    add((record.kind == MetricsRecord::Kind::training ? "step " : "validation " + record.set + " ") +
        std::to_string(record.step));
  }
  void finish() override { add("finish"); }
  void add(const std::string& line) {
    lines.push_back(line);
    if (line == fails) throw Error(ErrorCode::plugin_failed, "libheddle_x.so", "the plugin 'x' threw");
  }
  std::vector<std::string>& lines;
  const std::string fails;
};

class SinksOfARun : public ::testing::Test {
 protected:
  // Adds a section whose plugin throws at the call `fails`.
  void add(const std::string& name, const std::string& fails = "") {
    auto& offered = offered_.emplace_back(std::make_unique<OfferedMetrics>());
    offered->make = [this, fails](const Node&) { return std::make_unique<Recorder>(lines_, fails); };
    sections_.push_back({name, offered.get(), {}});
  }
  void run() {
    Sinks sinks(sections_, {"run", 4, 8, {}, ""},
                [this](const std::string& text) { warnings_.push_back(text); });
    for (int64_t step = 4; step < 7; ++step) sinks.record(to_record(training(step)));
    sinks.record(to_record(ValidationRecord{6, 1, 2.5, 1e-3, 10}, "held"));
    sinks.finish();
  }
  static TrainingRecord training(int64_t step) {
    TrainingRecord out;
    out.step = step;
    return out;
  }

  std::vector<std::unique_ptr<OfferedMetrics>> offered_;
  std::vector<SinkSection> sections_;
  std::vector<std::string> lines_, warnings_;
};

TEST_F(SinksOfARun, GetEachRecordOnceAndInOrder) {
  add("mine");
  run();
  EXPECT_THAT(lines_, ElementsAre("start 4", "step 4", "step 5", "step 6", "validation held 6", "finish"));
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(SinksOfARun, AreClosedWithOneWarningWhereARecordFails) {
  add("mine", "step 5");
  run();
  EXPECT_THAT(lines_, ElementsAre("start 4", "step 4", "step 5"));
  EXPECT_THAT(warnings_,
              ElementsAre("mine gets no more metrics, but the run continues: the plugin 'x' threw"));
}

TEST_F(SinksOfARun, ContinueWhenOneFails) {
  add("bad", "step 4");
  add("good");
  run();
  EXPECT_THAT(lines_, ElementsAre("start 4", "start 4", "step 4", "step 4", "step 5", "step 6",
                                  "validation held 6", "finish"));
}

TEST_F(SinksOfARun, EndTheRunWhereStartFails) {
  add("mine", "start 4");
  EXPECT_EQ(tests::thrown_by([&] { run(); }), "error[plugin_failed] libheddle_x.so: the plugin 'x' threw");
}

// Checks that a record has the names and values of its JSON line.
void expect_the_line(const std::string& json, const MetricsRecord& record) {
  const auto line = nlohmann::ordered_json::parse(json);
  EXPECT_EQ(line["step"], record.step);
  EXPECT_EQ(line["epoch"], record.epoch);
  size_t at = 0;
  for (const auto& [name, value] : line.items()) {
    if (name == "step" || name == "epoch" || name == "timestamp" || value.is_null()) continue;
    ASSERT_LT(at, record.fields.size()) << name;
    EXPECT_EQ(record.fields[at].name, name);
    const std::vector<double> numbers = value.is_boolean()
                                            ? std::vector<double>{value.get<bool>() ? 1.0 : 0.0}
                                        : value.is_array() ? value.get<std::vector<double>>()
                                                           : std::vector<double>{value.get<double>()};
    EXPECT_EQ(record.fields[at++].values, numbers) << name;
  }
  EXPECT_EQ(at, record.fields.size());
}

TEST(MetricsRecords, HoldTheFieldsOfTheLine) {
  TrainingRecord record;
  record.step = 3;
  record.epoch = 1;
  record.loss = 2.25;
  record.grad_norm = 0.5;
  record.lr = 1e-4;
  record.skipped = true;
  record.mem = 1.5;
  record.tps = 10;
  record.tps_per_gpu = 5;
  record.num_tokens_per_step = 84;
  record.num_label_tokens = 80;
  record.step_time = 0.125;
  record.sides = {{"moe/load", {0.25, 0.75}, false}, {"moe/balance", {0.0625}, true}};
  expect_the_line(to_json(record, "now"), to_record(record));
  record.mfu = 40;
  record.tflops = 100;
  expect_the_line(to_json(record, "now"), to_record(record));
  const ValidationRecord validation{7, 2, 2.5, 1e-3, 90};
  expect_the_line(to_json(validation, "now"), to_record(validation, "held"));
}

TEST(MetricsRecords, KeepALossThatIsNotFinite) {
  TrainingRecord record;
  record.loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_record(record).fields[0].values[0], record.loss);  // the JSON line has null
}

}  // namespace
}  // namespace heddle
