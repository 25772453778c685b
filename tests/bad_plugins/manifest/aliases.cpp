// Bad: the aliases in the body differ from the aliases in the manifest.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("aliases", "0.1.0", "strategy aliases alias-one") {
  plugin.strategy<plain::Strategy>("aliases", plain::schema()).aliases = {"alias-two"};
}
