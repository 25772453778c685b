// A table of signals: those that schedulers and people send, not those of faults and of run control.
#include "lib/run/recipe/signals.h"

#include <signal.h>

#include <array>

#include "heddle/base/text.h"

namespace heddle {
namespace {

struct SignalName {
  const char* name;
  int number;
};

constexpr std::array<SignalName, 8> kSignals = {{{"SIGTERM", SIGTERM},
                                                 {"SIGINT", SIGINT},
                                                 {"SIGUSR1", SIGUSR1},
                                                 {"SIGUSR2", SIGUSR2},
                                                 {"SIGHUP", SIGHUP},
                                                 {"SIGQUIT", SIGQUIT},
                                                 {"SIGALRM", SIGALRM},
                                                 {"SIGXCPU", SIGXCPU}}};

}  // namespace

std::optional<int> signal_of(std::string_view name) {
  const std::string word = text::lower(std::string(name));
  for (const SignalName& one : kSignals) {
    const std::string whole = text::lower(one.name);
    if (word == whole || word == whole.substr(3)) return one.number;
  }
  return std::nullopt;
}

std::string signal_name(int64_t number) {
  for (const SignalName& one : kSignals)
    if (one.number == number) return one.name;
  return "signal " + std::to_string(number);
}

std::vector<std::string> signal_names() {
  std::vector<std::string> names;
  for (const SignalName& one : kSignals) names.emplace_back(one.name);
  return names;
}

}  // namespace heddle
