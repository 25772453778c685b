// The simulated GPUs of this process: streams whose work runs late, events, memory, counts and reports.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/simulated/memory.h"
#include "lib/simulated/races.h"

namespace heddle::simulated {

// When work runs that is allowed to run.
enum class Policy { at_once, late, random };

// Limits of the kernels that are on a device at once. Default: no limit.
struct Hardware {
  int queues = 0;  // of a device, each for some of its streams: work starts in the order of its queue
  int ctas = 0;    // of a device, for kernels that wait for other ranks
  // These kernels start in the order in which the host launched them; else in an order that differs from
  // device to device.
  bool in_launch_order = false;
};

struct Counts {
  int64_t launches = 0;          // kernels, copies and collectives
  int64_t synchronisations = 0;  // of the host with the device
  int64_t bytes_to_host = 0, bytes_to_device = 0;
  int64_t bytes_touched = 0;  // that operators and heddle's kernels read and write
};

// A point of a stream.
struct Point {
  int stream = -1;  // -1: never recorded
  uint64_t position = 0;
  Clock clock = {};
};

// A collective of several streams: it runs once the host of each rank has posted it and each stream has come
// to it.
struct Meeting {
  std::vector<std::pair<int, uint64_t>> places;  // stream and position, of those who have posted
  size_t expected = 0;
  bool done = false;
  std::function<void()> run;
};

// A piece of a stream's work, in the order of the stream.
struct Task {
  std::string name;
  std::function<void()> run;         // may be empty: a wait
  std::vector<Point> after;          // of other streams
  std::shared_ptr<Meeting> meeting;  // null: of this stream alone
  int ctas = 0;                      // that a kernel of a meeting holds from its start to its end
  uint64_t number = 0;               // in the order of all launches
  bool started = false;
};

// One for the process. All calls are safe from any thread.
class Machine {
 public:
  static Machine& get();  // is never destroyed: tensors may outlive every other static

  // Ends all work, forgets counts and reports, and begins anew with that policy.
  void begin(Policy policy, uint64_t seed = 0);
  void set_hardware(const Hardware& hardware);  // until the next begin()

  // How long the host waits for work that cannot run: at most a minute.
  void set_patience(std::chrono::milliseconds patience);

  // A rank of this run failed: waits for work that cannot run throw Error{rank_lost}.
  void abandon(const std::string& why);

  // The index of a stream; made when it is first named. id 0: the device's default stream.
  int stream(int device, int64_t id);
  std::string name_of(int stream);

  // Work behind what the stream holds. Ranges are checked for races now.
  void launch(int stream, Task task, std::span<const Range> ranges);
  Point record(int stream);
  void wait(int stream, const Point& point);  // later work of the stream runs after the point
  bool passed(const Point& point);
  // Does what passed() does, on a device that works while the host does something else.
  bool advance(const Point& point);
  // A place of a meeting that no task of its own stands for.
  void post(Meeting& meeting, const Point& place);
  // Its tasks end with nothing done, whoever has not come.
  void give_up(Meeting& meeting);
  // The host waits. Throws what work has thrown, and Error{timeout} where a stream never comes there.
  void synchronize(const Point& point, const std::string& who);
  void synchronize_device(int device, const std::string& who);

  Block& allocate(size_t bytes, int device, int64_t stream_id);
  void free(Block& block);
  // The block is freed behind what that stream holds when its tensor is gone.
  void use(const void* address, int stream);
  std::byte* kernel_bytes(const void* address) { return memory_.kernel_bytes(address); }
  bool holds(const void* address) { return memory_.holds(address); }
  int64_t bytes(int device, bool peak);

  Counts counts();
  std::map<std::string, int64_t> launches_by_name();
  void count_copy(int64_t to_host, int64_t to_device);
  std::vector<std::string> reports();
  // "a block of 16 bytes, which aten::fill_ on stream 0 of cuda:0 writes": by a process that ends.
  std::string describe(const void* address);
  void report(const std::string& text);

 private:
  struct Stream {
    int device = 0;
    int64_t id = 0;
    Clock clock;
    std::deque<Task> queue;
    uint64_t launched = 0, done = 0;
  };
  static constexpr size_t kReports = 64;
  Machine() = default;
  // All below: under mutex_.
  void check(int stream, const std::string& name, std::span<const Range> ranges);
  void enqueue(int stream, Task task);
  void run_some(int stream);
  // A stream whose first task can run now, on the way to that position; -1: none.
  int runnable(int stream, uint64_t position, std::set<std::pair<int, uint64_t>>& seen);
  void run_first(int stream);
  // The stream and the position of work on the device that the first task of a stream starts behind; -1:
  // none.
  std::pair<int, uint64_t> in_the_way(int stream) const;
  bool is_ready(const Task& task) const;  // all that it waits for is done
  bool can_start(int stream);
  void start_kernels();
  // Returns what runnable() returns, for the work that keeps the first task of a stream from its start.
  int before_start(int stream, std::set<std::pair<int, uint64_t>>& seen);
  void run_to(std::unique_lock<std::mutex>& lock, int stream, uint64_t position, const std::string& who);
  std::string where(int stream);

  std::mutex mutex_;
  std::condition_variable changed_;
  Policy policy_ = Policy::at_once;
  Hardware hardware_;
  uint64_t numbered_ = 0;
  std::map<int, int> ctas_;  // in use, by device
  std::mt19937_64 random_;
  Memory memory_;
  Races races_;
  std::deque<Stream> streams_;
  std::map<std::pair<int, int64_t>, int> index_;
  std::map<int, Clock> hosts_;  // what the host of a device has waited for
  Counts counts_;
  std::map<std::string, int64_t> by_name_;
  std::vector<std::string> reports_;
  std::exception_ptr fault_;
  std::string abandoned_;  // why a rank failed; empty: none
  std::chrono::milliseconds patience_ = std::chrono::minutes(1);
};

}  // namespace heddle::simulated
