// Bad: the manifest names a section that the body never registers.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("promises", "0.1.0", "strategy promises", "section extra") {
  plugin.strategy<plain::Strategy>("promises", plain::schema());
}
