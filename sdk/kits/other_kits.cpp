// The kits of schedules, plans and devices.
#include "other_kits.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "heddle/mesh/call.h"
#include "schedule/schedule_shapes.h"
#include "training_run.h"

namespace heddle::kits {
namespace {

std::string trains_as_single(TrainingRun training) {
  TrainingRun plain;
  plain.shape = training.shape;
  plain.adamw = training.adamw = true;
  training.drive = TrainingRun::Drive::pipeline;
  training.device = check_device();
  const Outcome want = train(single(), plain), got = train(single(), training);
  compare(got, want);
  return distance(got, want);
}

std::string trains_by(const OfferedSchedule& offered, int ranks) {
  TrainingRun training;
  training.pp = ranks;
  training.schedule = offered.make();
  training.shape.layers = 2 * ranks + 1;
  const StagesPerRank takes = training.schedule->stages_per_rank();
  try {
    (void)training.schedule->plan(ranks, ranks * std::min(takes.most, std::max(takes.least, 1)), kRows);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
    throw NotRun{"it refuses " + std::to_string(kRows) + " microbatches: " + error.message()};
  }
  return trains_as_single(training);
}

std::string computes(IDevice& device) {
  const c10::Device place = device.start(0);
  AloneRendezvous host;
  const auto rendezvous = device.wrap(host);
  if (rendezvous == nullptr) found("wrap() returns a null pointer");
  if (rendezvous->device() != place)
    found("start() returns " + place.str() + ", but the rendezvous of wrap() is on " +
          rendezvous->device().str());
  const std::vector<int> ranks = {0};
  const auto group = rendezvous->group("dp", ranks);
  for (const at::Device where : {place, c10::Device(at::kCPU)}) {
    at::Tensor sum = at::full({5}, 3.0, at::TensorOptions().device(where));
    group->all_reduce(sum)->wait();
    if (!sum.is_meta() && sum.sum().item<double>() != 15) found("all_reduce of one rank changes its tensor");
  }
  device.synchronize();
  const DeviceMemory memory = device.memory();
  if (memory.current < 0 || memory.peak < memory.current)
    found("memory() returns a peak below the current bytes");
  return place.str() + ", peak " + std::to_string(memory.peak) + " bytes";
}

}  // namespace

void run_schedule_kits(const OfferedSchedule& offered, const std::filesystem::path& file,
                       const std::vector<int>& ranks, Attempts& attempt) {
  const std::string thing = "schedule '" + offered.name + "'";
  attempt(thing + ": plan(): a pure function from sizes to an order of work",
          [&] { return plans_tables(*offered.make(), file); });
  for (const int each : ranks)
    if (each > 1)
      attempt.training(thing + " on " + std::to_string(each) + " ranks: core adds transfers and runs it",
                       [&] { return trains_by(offered, each); });
}

void run_device_kits(const OfferedDevice& offered, Attempts& attempt) {
  const std::string thing = "device '" + offered.name + "': ";
  std::string missing;
  attempt(thing + "absent(): the reason why it is not available here", [&] {
    missing = offered.make()->absent();
    const std::string again = offered.make()->absent();
    if (missing != again) found("it says '" + missing + "', then '" + again + "'");
    return missing.empty() ? std::string("it is available") : missing;
  });
  attempt.training(thing + "start(), wrap(): a rendezvous whose groups move its tensors", [&] {
    if (!missing.empty()) throw NotRun{"the device is not available here: " + missing};
    return computes(*offered.make());
  });
}

void run_plan_kits(const OfferedPlan& offered, Attempts& attempt) {
  attempt("plan '" + offered.name + "': gives styles to modules", [&] {
    if (offered.fields.empty()) found("it names no module");
    return std::to_string(offered.fields.size()) + " patterns";
  });
}

}  // namespace heddle::kits
