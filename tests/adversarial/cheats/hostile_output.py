# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C20
# tries: return an object whose methods answer every question as wished
# verdict: wrong
class Yes(list):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __iter__(self):
        return iter([0.0] * super().__len__())

    def __getitem__(self, at):
        return 0.0

    def __hash__(self):
        return 0


def custom_kernel(data):
    return Yes(data)
