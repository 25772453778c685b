// Good: opens, offers what its manifest says, and has two further names.
#include "plain.h"

HEDDLE_PLUGIN("plain", "1.2.3", "strategy plain Simple plain-old") {
  plugin.strategy<plain::Strategy>("plain", plain::schema());
}
