// Good: registers what its manifest declares, and has two aliases.
#include "plain.h"

HEDDLE_PLUGIN("plain", "1.2.3", "strategy plain Simple plain-old") {
  plugin.strategy<plain::Strategy>("plain", plain::schema());
}
