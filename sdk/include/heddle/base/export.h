// Marks what leaves libheddle; everything else is hidden.
#pragma once

#define HEDDLE_API __attribute__((visibility("default")))
