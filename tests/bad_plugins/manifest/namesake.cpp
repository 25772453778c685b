// Bad beside the plugin plain: a strategy whose alias equals an alias of plain in another case.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("namesake", "0.1.0", "strategy namesake SIMPLE") {
  plugin.strategy<plain::Strategy>("namesake", plain::schema());
}
