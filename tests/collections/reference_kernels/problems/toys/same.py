def same(one, other):
    return one == other
