// World, the ranks of a Python process: joined once, left at the end of the interpreter, interrupted by
// Ctrl-C.
#pragma once

#include <Python.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heddle/mesh/rendezvous.h"
#include "heddle/plugin/registry.h"

namespace heddle::python {

// Whether Python objects may still be touched, and the engine may be called. False once the interpreter ends,
// and in a forked child: what C++ holds is then leaked.
bool interpreter_lives();
void interpreter_ends();

// One call into the engine. Throws Error{usage} while another thread is in one, in a forked child and after
// the interpreter's end.
class OneCall {
 public:
  OneCall(std::atomic<bool>& busy, const char* where);
  ~OneCall() { busy_ = false; }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  std::atomic<bool>& busy_;
};

class World {
 public:
  struct Options {
    double timeout_seconds = 600;
    std::vector<std::string> plugins;  // directories searched before HEDDLE_PLUGIN_PATH
    std::function<void(int level, std::string room, std::string text)> log;
  };
  // Joins the ranks given by the launcher's environment, or a world of one rank without a launcher. Throws
  // Error.
  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Rendezvous& rendezvous() { return *rendezvous_; }
  PluginRegistry& plugins() { return *plugins_; }
  int rank() const { return rendezvous_->rank(); }
  int size() const { return rendezvous_->world_size(); }
  int local_rank() const { return rendezvous_->local_rank(); }
  int local_size() const { return rendezvous_->local_world_size(); }
  void barrier(const std::string& key) { rendezvous_->barrier(key); }
  std::vector<std::string> exchange(const std::string& key, const std::string& text) {
    return rendezvous_->exchange(key, text);
  }
  void abandon(const std::string& why) { rendezvous_->abandon(why); }
  void leave() { rendezvous_->leave(); }
  const std::string& launcher() const { return launcher_; }

  // Listens to the descriptor of signal.set_wakeup_fd(). If SIGINT arrives while the main thread waits in C++
  // code, this rank abandons the run, and the wait throws.
  void listen(int descriptor);
  bool interrupted() const { return interrupted_; }

 private:
  void hear(int descriptor);

  std::string launcher_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<PluginRegistry> plugins_;
  std::thread listener_;
  std::atomic<bool> interrupted_ = false;
  int stop_[2] = {-1, -1};  // a pipe that ends the listener
  const int process_;
};

}  // namespace heddle::python
