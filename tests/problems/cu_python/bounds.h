#pragma once
static inline long long at_most(long long a, long long b) { return a < b ? a : b; }
