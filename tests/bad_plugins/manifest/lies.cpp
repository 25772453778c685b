// Bad: registers a strategy that the manifest does not name.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("lies", "0.1.0") {
  plugin.strategy<plain::Strategy>("plain", plain::schema());
}
