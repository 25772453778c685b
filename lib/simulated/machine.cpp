// Work runs on the thread that needs it, under one lock: the order is a function of the policy and of what
// the hosts do.
#include "lib/simulated/machine.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"

namespace heddle::simulated {
namespace {

constexpr std::chrono::milliseconds kSlice{20};
constexpr std::chrono::milliseconds kMostPatience{60000};

}  // namespace

Machine& Machine::get() {
  static auto* machine = [] {
    Memory::set_description([](const void* address) { return Machine::get().describe(address); });
    return new Machine();
  }();
  return *machine;
}

void Machine::begin(Policy policy, uint64_t seed) {
  std::unique_lock lock(mutex_);
  hardware_ = {};
  ctas_.clear();
  for (Stream& stream : streams_)
    for (Task& task : stream.queue)  // who has not come will not: a rank of that run has failed
      if (task.meeting && task.meeting->places.size() < task.meeting->expected) task.meeting->done = true;
  for (size_t i = 0; i < streams_.size(); ++i)
    run_to(lock, static_cast<int>(i), streams_[i].launched, "the end of a run");
  policy_ = policy;
  random_.seed(seed);
  counts_ = {};
  by_name_.clear();
  reports_.clear();
  races_.forget();
  fault_ = nullptr;
  abandoned_.clear();
}

void Machine::set_patience(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  patience_ = std::min<std::chrono::milliseconds>(patience, kMostPatience);
}

void Machine::abandon(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (abandoned_.empty()) abandoned_ = why;
  changed_.notify_all();
}

int Machine::stream(int device, int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = index_.try_emplace({device, id}, static_cast<int>(streams_.size()));
  if (is_new) {
    streams_.emplace_back();
    streams_.back().device = device;
    streams_.back().id = id;
  }
  return found->second;
}

std::string Machine::name_of(int stream) {
  const Stream& one = streams_[static_cast<size_t>(stream)];
  return "stream " + std::to_string(one.id) + " of cuda:" + std::to_string(one.device);
}

void Machine::check(int stream, const std::string& name, std::span<const Range> ranges) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  one.clock.join(hosts_[one.device]);
  one.clock.tick(stream);
  const Place place{name + " on " + name_of(stream), stream};
  for (const Range& range : ranges) {
    if (range.begin == range.end) continue;
    const Block* block = memory_.block_at(range.begin);
    if (block == nullptr) continue;
    const std::string race = races_.add(block->address, range, place, one.clock);
    if (!race.empty() && reports_.size() < kReports) reports_.push_back(race);
  }
}

void Machine::enqueue(int stream, Task task) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  ++one.launched;
  task.number = numbered_++;
  if (task.meeting) task.meeting->places.emplace_back(stream, one.launched);
  one.queue.push_back(std::move(task));
}

void Machine::launch(int stream, Task task, std::span<const Range> ranges) {
  const std::lock_guard lock(mutex_);
  check(stream, task.name, ranges);
  ++counts_.launches;
  for (const Range& range : ranges) counts_.bytes_touched += static_cast<int64_t>(range.bytes);
  ++by_name_[task.name];
  enqueue(stream, std::move(task));
  run_some(stream);
  changed_.notify_all();
}

// After new work: all that can run, none, or a draw.
void Machine::run_some(int stream) {
  if (policy_ == Policy::late) return;
  int budget = policy_ == Policy::at_once ? 1 << 30 : static_cast<int>(random_() % 4);
  while (budget-- > 0) {
    const size_t at = policy_ == Policy::at_once ? static_cast<size_t>(stream) : random_() % streams_.size();
    std::set<std::pair<int, uint64_t>> seen;
    const int next = runnable(static_cast<int>(at), streams_[at].launched, seen);
    if (next >= 0)
      run_first(next);
    else if (policy_ == Policy::at_once)
      return;
  }
}

Point Machine::record(int stream) {
  const std::lock_guard lock(mutex_);
  const Stream& one = streams_[static_cast<size_t>(stream)];
  return {stream, one.launched, one.clock};
}

void Machine::wait(int stream, const Point& point) {
  if (point.stream < 0) return;
  const std::lock_guard lock(mutex_);
  Stream& one = streams_[static_cast<size_t>(stream)];
  one.clock.join(point.clock);
  if (streams_[static_cast<size_t>(point.stream)].done >= point.position) return;
  enqueue(stream, {"wait", {}, {point}, nullptr});
  run_some(stream);
}

bool Machine::passed(const Point& point) {
  const std::lock_guard lock(mutex_);
  return point.stream < 0 || streams_[static_cast<size_t>(point.stream)].done >= point.position;
}

bool Machine::advance(const Point& point) {
  if (point.stream < 0) return true;
  const std::lock_guard lock(mutex_);
  for (;;) {
    if (streams_[static_cast<size_t>(point.stream)].done >= point.position) return true;
    std::set<std::pair<int, uint64_t>> seen;
    const int next = runnable(point.stream, point.position, seen);
    if (next < 0) return false;
    run_first(next);
  }
}

void Machine::post(Meeting& meeting, const Point& place) {
  const std::lock_guard lock(mutex_);
  meeting.places.emplace_back(place.stream, place.position + 1);
  changed_.notify_all();
}

void Machine::give_up(Meeting& meeting) {
  const std::lock_guard lock(mutex_);
  meeting.done = true;
  changed_.notify_all();
}

void Machine::set_hardware(const Hardware& hardware) {
  const std::lock_guard lock(mutex_);
  hardware_ = hardware;
}

bool Machine::is_ready(const Task& task) const {
  for (const Point& point : task.after)
    if (streams_[static_cast<size_t>(point.stream)].done < point.position) return false;
  return true;
}

std::pair<int, uint64_t> Machine::in_the_way(int stream) const {
  const Stream& one = streams_[static_cast<size_t>(stream)];
  const Task& first = one.queue.front();
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& other = streams_[i];
    if (static_cast<int>(i) == stream || other.device != one.device) continue;
    const bool shares = hardware_.queues > 0 && other.id % hardware_.queues == one.id % hardware_.queues;
    const bool follows = hardware_.in_launch_order && first.ctas > 0;
    for (size_t place = 0; place < other.queue.size() && (shares || follows); ++place) {
      const Task& task = other.queue[place];
      if (task.number > first.number) break;
      if (!task.started && (shares || task.ctas > 0)) return {static_cast<int>(i), other.done + 1 + place};
    }
  }
  return {-1, 0};
}

bool Machine::can_start(int stream) {
  const Stream& one = streams_[static_cast<size_t>(stream)];
  if (one.queue.empty()) return false;
  const Task& first = one.queue.front();
  return first.ctas > 0 && !first.started && is_ready(first) && in_the_way(stream).first < 0 &&
         ctas_[one.device] + first.ctas <= hardware_.ctas;
}

// One a device in each round: the oldest, or on every other device the newest where no order is kept.
void Machine::start_kernels() {
  if (hardware_.ctas == 0) return;
  for (bool any = true; any;) {
    std::map<int, int> chosen;  // streams by device
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (!can_start(static_cast<int>(i))) continue;
      const int device = streams_[i].device;
      const auto [found, is_first] = chosen.try_emplace(device, static_cast<int>(i));
      const bool is_older = streams_[i].queue.front().number <
                            streams_[static_cast<size_t>(found->second)].queue.front().number;
      if (!is_first && is_older == (device % 2 == 0 || hardware_.in_launch_order))
        found->second = static_cast<int>(i);
    }
    any = !chosen.empty();
    for (const auto& [device, stream] : chosen) {
      Task& first = streams_[static_cast<size_t>(stream)].queue.front();
      first.started = true;
      ctas_[device] += first.ctas;
    }
  }
}

// -1 where nothing on the way can run either.
int Machine::before_start(int stream, std::set<std::pair<int, uint64_t>>& seen) {
  const Stream& one = streams_[static_cast<size_t>(stream)];
  if (const auto [other, position] = in_the_way(stream); other >= 0) return runnable(other, position, seen);
  for (size_t i = 0; i < streams_.size(); ++i) {  // a kernel whose end gives room
    const Stream& other = streams_[i];
    if (other.device != one.device || other.queue.empty() || !other.queue.front().started) continue;
    if (const int next = runnable(static_cast<int>(i), other.done + 1, seen); next >= 0) return next;
  }
  return -1;
}

int Machine::runnable(int stream, uint64_t position, std::set<std::pair<int, uint64_t>>& seen) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  start_kernels();
  if (one.done >= position || !seen.emplace(stream, one.done).second) return -1;
  const Task& first = one.queue.front();
  for (const Point& point : first.after)
    if (streams_[static_cast<size_t>(point.stream)].done < point.position)
      return runnable(point.stream, point.position, seen);
  const bool must_start = hardware_.ctas > 0 && first.ctas > 0;
  if (first.meeting && first.meeting->done) return stream;
  if (must_start ? !first.started : hardware_.queues > 0 && in_the_way(stream).first >= 0)
    return before_start(stream, seen);
  if (!first.meeting) return stream;
  const Meeting& meeting = *first.meeting;
  if (meeting.places.size() < meeting.expected) return -1;
  bool all_there = true;
  for (const auto& [other, place] : meeting.places) {
    const Stream& there = streams_[static_cast<size_t>(other)];
    const bool is_next = there.done + 1 >= place;
    const bool is_held = must_start && is_next && !there.queue.empty() &&
                         there.queue.front().meeting == first.meeting && !there.queue.front().started;
    if (is_next && !is_held) continue;
    all_there = false;
    const int next = runnable(other, is_next ? place : place - 1, seen);
    if (next >= 0) return next;
  }
  return all_there ? stream : -1;
}

void Machine::run_first(int stream) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  Task task = std::move(one.queue.front());
  one.queue.pop_front();
  if (task.started) ctas_[one.device] -= task.ctas;
  try {
    if (task.meeting && !std::exchange(task.meeting->done, true)) task.meeting->run();
    if (task.run) task.run();
  } catch (const std::exception& error) {
    if (!fault_)
      fault_ = std::make_exception_ptr(Error(ErrorCode::internal, "simulated",
                                             task.name + " on " + name_of(stream) + ": " + error.what()));
  }
  ++one.done;
  changed_.notify_all();
}

std::string Machine::where(int stream) {
  const Stream& one = streams_[static_cast<size_t>(stream)];
  if (one.queue.empty()) return name_of(stream) + " is idle";
  const Task& first = one.queue.front();
  std::string text = name_of(stream) + " is before " + first.name;
  if (first.meeting)
    text += " (posted by " + std::to_string(first.meeting->places.size()) + " of " +
            std::to_string(first.meeting->expected) + " ranks" +
            (first.ctas > 0 && !first.started && hardware_.ctas > 0 ? ", and has not started)" : ")");
  return text;
}

void Machine::run_to(std::unique_lock<std::mutex>& lock, int stream, uint64_t position,
                     const std::string& who) {
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (streams_[static_cast<size_t>(stream)].done < position) {
    std::set<std::pair<int, uint64_t>> seen;
    if (const int next = runnable(stream, position, seen); next >= 0) {
      run_first(next);
      continue;
    }
    changed_.wait_for(lock, kSlice);
    if (fault_) break;
    if (!abandoned_.empty())
      throw Error(ErrorCode::rank_lost, "simulated", who + " waits for a rank that failed: " + abandoned_);
    if (std::chrono::steady_clock::now() < end) continue;
    throw Error(ErrorCode::timeout, "simulated", who + " waits for work that cannot run: " + where(stream));
  }
}

void Machine::synchronize(const Point& point, const std::string& who) {
  if (point.stream < 0) return;
  std::unique_lock lock(mutex_);
  ++counts_.synchronisations;
  ++by_name_["synchronisation by " + who];
  run_to(lock, point.stream, point.position, who);
  hosts_[streams_[static_cast<size_t>(point.stream)].device].join(point.clock);
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void Machine::synchronize_device(int device, const std::string& who) {
  std::vector<Point> points;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < streams_.size(); ++i)
      if (streams_[i].device == device)
        points.push_back({static_cast<int>(i), streams_[i].launched, streams_[i].clock});
  }
  for (const Point& point : points) synchronize(point, who);
}

Block& Machine::allocate(size_t bytes, int device, int64_t stream_id) {
  const int at = stream(device, stream_id);
  const std::lock_guard lock(mutex_);
  return memory_.allocate(bytes, device, at);
}

void Machine::use(const void* address, int stream) {
  const std::lock_guard lock(mutex_);
  if (Block* block = memory_.block_at(address); block != nullptr && block->stream != stream)
    block->uses.insert(stream);
}

// The block can be given out again now, and is poisoned in the order of its stream, as if a kernel wrote it.
void Machine::free(Block& block) {
  const std::lock_guard lock(mutex_);
  for (const int use : std::exchange(block.uses, {})) {
    const Stream& other = streams_[static_cast<size_t>(use)];
    streams_[static_cast<size_t>(block.stream)].clock.join(other.clock);
    if (other.done < other.launched)
      enqueue(block.stream, {"wait", {}, {{use, other.launched, other.clock}}, nullptr});
  }
  const Range all{block.address, block.address + block.room, true};
  check(block.stream, "the free of a block of " + std::to_string(block.bytes) + " bytes", {&all, 1});
  std::byte* bytes = memory_.kernel_bytes(block.address);
  const size_t room = block.room;
  enqueue(block.stream, {"free", [bytes, room] { std::memset(bytes, Memory::kPoison, room); }, {}, nullptr});
  memory_.free(block);
  run_some(block.stream);
}

}  // namespace heddle::simulated
