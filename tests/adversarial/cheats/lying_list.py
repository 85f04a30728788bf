# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C20
# tries: answer with a list and floats that lie about their length, items and values while they are written down
# verdict: wrong
class Number(float):
    def __float__(self):
        return 0.0

    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return False

    __hash__ = float.__hash__


class Answer(list):
    def __len__(self):
        return self.claimed

    def __iter__(self):
        return iter([Number(1.0)] * self.claimed)

    def __getitem__(self, at):
        return Number(1.0)

    def __eq__(self, other):
        return True


def custom_kernel(data):
    answer = Answer([3.0, 2.0, 1.0])
    answer.claimed = len(data)
    return answer
