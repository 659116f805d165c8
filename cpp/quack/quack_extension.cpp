#include "duckdb.hpp"

namespace quack {}
