// Joins the ranks, and runs the thread that ends waits on Ctrl-C.
#include "world.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "heddle/transport/rank_place.h"

namespace heddle::python {
namespace {

std::atomic<bool> ended = false;

// Incremented by the main thread when it runs Python code.
std::atomic<int> runs_python = 0;

int note_python(void*) {
  ++runs_python;
  return 0;
}

// Time within which the main thread reaches Python code.
constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

bool interpreter_lives() {
  return !ended && Py_IsInitialized() != 0;
}

void interpreter_ends() {
  ended = true;
}

OneCall::OneCall(std::atomic<bool>& busy, const char* where) : busy_(busy) {
  if (!interpreter_lives())
    throw Error(ErrorCode::usage, where,
                "a forked process cannot use the engine of its parent, nor can any process at its end",
                "call heddle in the process that called heddle.init(), or start workers with 'spawn'");
  if (busy.exchange(true))
    throw Error(ErrorCode::usage, where, "two calls use the engine of one model at the same time",
                "use the model, its optimizer and heddle's functions in one thread, one after another");
}

World::World(const Options& options) : process_(getpid()) {
  const RankPlace place = place_from_environment().value_or(RankPlace());
  launcher_ = place.launcher;
  Log log;
  if (options.log)
    log = Log([sink = options.log](LogLevel level, std::string_view room, std::string_view text) {
      sink(static_cast<int>(level), std::string(room), std::string(text));
    });
  GlooOptions gloo;
  gloo.timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * options.timeout_seconds));
  gloo.log = log;
  rendezvous_ = mesh::join(place, gloo);
  const std::vector<std::filesystem::path> directories(options.plugins.begin(), options.plugins.end());
  plugins_ = std::make_unique<PluginRegistry>(plugin::search_path(directories), log);
}

// A forked child has no threads to end.
World::~World() {
  if (getpid() != process_) {
    if (listener_.joinable()) listener_.detach();
    (void)rendezvous_.release();
    (void)plugins_.release();
    return;
  }
  if (!listener_.joinable()) return;
  close(stop_[1]);
  listener_.join();
  close(stop_[0]);
}

void World::listen(int descriptor) {
  if (listener_.joinable() || pipe(stop_) != 0) return;
  listener_ = std::thread([this, descriptor] { hear(descriptor); });
}

void World::hear(int descriptor) {
  for (;;) {
    pollfd watched[2] = {{descriptor, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    if (poll(watched, 2, -1) < 0) continue;
    if (watched[1].revents != 0) return;
    unsigned char signals[64];
    const ssize_t count = read(descriptor, signals, sizeof(signals));
    if (count == 0) return;
    for (ssize_t i = 0; i < count; ++i) {
      if (signals[i] != SIGINT || rendezvous_->world_size() == 1 || !interpreter_lives()) continue;
      const int before = runs_python;
      Py_AddPendingCall(note_python, nullptr);
      std::this_thread::sleep_for(kPatience);
      if (runs_python != before) continue;
      interrupted_ = true;
      rendezvous_->abandon("it was interrupted by Ctrl-C");
    }
  }
}

}  // namespace heddle::python
