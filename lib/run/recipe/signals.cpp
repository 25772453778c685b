// Signals that schedulers and users send, without signals of faults and of job control.
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

std::string FieldType<StopSignals>::type_name() {
  return "word, integer, list of them, or null";
}

StopSignals FieldType<StopSignals>::read(const Node& value) {
  StopSignals out;
  if (value.is_null()) return out;
  if (value.is_list()) {
    for (const Node& item : value.items())
      for (const int number : read(item).numbers) out.numbers.push_back(number);
    return out;
  }
  if (value.kind() != Node::Kind::integer && value.kind() != Node::Kind::text)
    throw Error(ErrorCode::config, value.where(),
                "expected the name or number of a signal, a list of them, or null, got " + value.written());
  const bool is_name = value.kind() == Node::Kind::text;
  const auto number = signal_of(is_name ? value.as_text() : signal_name(value.as_integer()));
  if (!number)
    throw Error(ErrorCode::config, value.where(),
                value.written() + " is not a signal that a run can save and stop on; available signals: " +
                    text::join(signal_names()),
                "use the name or number of one of them, or null for none");
  out.numbers.push_back(*number);
  return out;
}

Node FieldType<StopSignals>::write(const StopSignals& value) {
  if (value.numbers.empty()) return Node();
  if (value.numbers.size() == 1) return Node::text(signal_name(value.numbers.front()));
  std::vector<Node> names;
  for (const int number : value.numbers) names.push_back(Node::text(signal_name(number)));
  return Node::list(std::move(names));
}

}  // namespace heddle
