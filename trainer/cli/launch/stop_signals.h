// Signals that request a save and a stop: handling in this process, and messages.
#pragma once

#include <string>
#include <vector>

#include "lib/run/recipe/sections.h"
#include "lib/run/spec/stop_request.h"
#include "trainer/cli/launch/launch.h"

namespace heddle::cli {

// Role of this process in the run.
enum class SignalRole {
  // The whole run: the first signal stops it at its next step, or at once before its first; a second at once.
  whole,
  // One rank of several: only records the signal. A rank of another launcher stops at once before its first
  // step and reports that to the others.
  rank,
};

// Returns the signals of step_scheduler.preemption_signal, and with them SIGINT and, unless it is ignored
// (nohup), SIGHUP. None if none is set.
std::vector<int> stop_signals(std::vector<int> asked);

// Returns the signals that stop the run with status 0 because a launcher or a scheduler sends them. Without
// step_scheduler.preemption_sender: all if a launcher or a scheduler started the run, else those that neither
// a terminal nor a plain `kill` sends.
std::vector<int> preemptions(const StepSection& steps, bool is_launched);

// Returns the request in memory that ranks started later share with this process.
StopRequest& shared_stop_request();

// Holds SIGTERM, SIGINT and SIGHUP until release_signals(): this rank has connected to others, and the
// meaning of a signal for the run is not known yet.
void hold_signals();
// Delivers the held signals, except `listened`, which listen() handles.
void release_signals(const std::vector<int>& listened);

// Until listen() or launch::run(), each of these signals exits this process with its status; nothing is lost.
void end_on(const launch::Stop& stop);

// Exits this process by SIGINT itself, which a shell reports as 130: bash leaves a loop only then.
[[noreturn]] void end_by_interrupt();

// Starts a thread that takes the signals for all threads of this process. Must be called once, before other
// threads are created.
void listen(const launch::Stop& stop, SignalRole taker);

// Returns "stopped by SIGTERM before the first step: ...".
std::string stopped_before_the_first_step(int signal);
// Returns "SIGTERM: the run saves and stops after this step; ...".
std::string stop_heard(int signal);

}  // namespace heddle::cli
