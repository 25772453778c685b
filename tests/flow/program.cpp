// Builds a command line, runs a program and waits for it.
#include "program.h"

#include "flow/stops/started.h"

namespace flow {

Words plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome heddle(const Words& words, const Words& environment) {
  return Started(words, environment).wait();
}

}  // namespace flow
