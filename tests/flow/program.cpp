// The words of a command line, and a program that is waited for.
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
