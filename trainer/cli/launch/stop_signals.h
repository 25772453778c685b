// Signals that request a save and an end: how this process takes them, and the messages.
#pragma once

#include <string>
#include <vector>

#include "lib/run/recipe/sections.h"
#include "lib/run/spec/stop_request.h"
#include "trainer/cli/launch/launch.h"

namespace heddle::cli {

// What this process is to the run.
enum class SignalRole {
  whole,  // all of it: the first signal ends it at its next step, or at once before its first; a second at
          // once
  rank,   // one rank of several: remembers that it was asked, whoever else was; a rank of another launcher
          // ends at once before its first step, and tells the others
};

// The signals of step_scheduler.preemption_signal, with SIGINT and, unless it is ignored (nohup), SIGHUP;
// none where there are none.
std::vector<int> stop_signals(std::vector<int> asked);

// Those of the named signals that end the run with status 0, as a launcher or a scheduler sends them. Where
// step_scheduler.preemption_sender does not say who does: all where one has started the run, elsewhere those
// that neither a terminal nor a plain `kill` sends.
std::vector<int> preemptions(const StepSection& steps, bool is_launched);

// In memory that ranks started from here on share with this process.
StopRequest& shared_stop_request();

// Holds SIGTERM, SIGINT and SIGHUP back from here to release_signals(): this rank has met others, and does
// not know yet what a signal means to the run.
void hold_signals();
// Delivers the held signals, except those of `listened`, which a thread takes (listen()).
void release_signals(const std::vector<int>& listened);

// Until listen() or launch::run(), one of these signals ends this process with its status: nothing is lost.
void end_on(const launch::Stop& stop);

// Ends this process by SIGINT itself, which a shell reports as 130: bash leaves a loop only then.
[[noreturn]] void end_by_interrupt();

// From here on a thread takes the signals, for this process and all of its threads. To be called before
// others are made, once.
void listen(const launch::Stop& stop, SignalRole taker);

// "stopped by SIGTERM before the first step: ..."
std::string stopped_before_the_first_step(int signal);
// "SIGTERM: the run saves and ends after this step; ..."
std::string stop_heard(int signal);

}  // namespace heddle::cli
