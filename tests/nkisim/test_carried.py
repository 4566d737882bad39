"""Names that an iteration sets anew, whatever the iterations before did."""

import inspect

import pytest

from nkisim.trace.carried import carried, names_set


def plain(n):
    for i in range(n):
        a = i * 2
        b, (c, *d) = a, (1, 2)
        print(a, b, c, d)


def counting(n):
    total = kept = 0
    for i in range(n):
        total += i
        kept = kept + 1
        last = kept
        print(last)


def branches(n):
    for i in range(n):
        if i:
            both = some = 1
        else:
            both = 2
        print(both, some)


def inner_loops(n):
    for i in range(n):
        for j in range(i):
            inside = j
            print(inside)
        print(j)


def behind(n):
    found = 0
    for i in range(n):
        print(found if i else 0)
        found = i


def scopes(n):
    seen = limit = 0

    def count():
        nonlocal seen
        seen += 1

    for i in range(n):
        squares = [k * k for k in range(i)]
        late = sum(m for m in squares if m > limit)
        limit = late

        def note():
            nonlocal seen
            seen += 1

        seen = 0
        count()
        note()


def imports(n, size=None):
    for i in range(n):
        print(size)
        import os.path
        from sys import getsizeof as size

        print(os, i)


def elsewhere(n):
    for i in range(n):
        with open(i) as file:
            text = file.read()
        while text:
            text, rest = text[1:], text
        if (size := len(rest)) > 3:
            print(size)


@pytest.mark.parametrize(
    ("function", "anew", "handed_on"),
    [
        (plain, "i a b c d", ""),
        (counting, "i last", "kept total"),
        (branches, "i both", "some"),
        (inner_loops, "i inside", "j"),
        (behind, "i", "found"),
        (scopes, "i squares late note", "limit seen"),
        (imports, "i os", "size"),
        (elsewhere, "i file text size", "rest"),
    ],
)
def test_names_that_are_set_before_they_are_read(function, anew, handed_on):
    lines, first = inspect.getsourcelines(function)
    loop = next(n for n, text in enumerate(lines) if text.startswith("    for "))
    found = names_set(function.__code__, first + loop)
    assert found.anew == set(anew.split())
    assert found.handed_on == tuple(handed_on.split())


def test_a_header_of_several_lines_is_found_by_each():
    def kernel(n):
        for i in range(
            n,
        ):
            a = i
        return a

    first = kernel.__code__.co_firstlineno
    for line in (1, 2, 3):
        assert names_set(kernel.__code__, first + line).anew == {"i", "a"}


def test_without_source_no_name_is_told():
    code = compile("def f(n):\n    for i in range(n):\n        a = i", "<made up>", "exec")
    assert names_set(code, 2) is None
    assert names_set(plain.__code__, 1) is None  # no loop there


# -- what an iteration leaves behind ---------------------------------------------------------------


def used_again(n):
    for i in range(n):
        for j in range(n):
            a = i + j
            print(a)
        b = j
        print(b)


def set_before(n):
    for i in range(n):
        for j in range(n):
            a = i + j
            print(a)
        j = a = 0
        print(i, j, a)


def read_in_the_next_outer_iteration(n):
    a = 0
    for i in range(n):
        print(a, i)
        for j in range(n):
            a = j


def set_in_a_branch_behind(n):
    for i in range(n):
        for j in range(n):
            a = b = j
            print(a, b)
        if i:
            a = b = 1
        else:
            b = 2
        print(a, b)


def items(x, n):
    rows = [0]
    for i in range(n):
        for j in range(n):
            x[i][j] = 1
            rows[0] = x[i, j]
            print.add(j)


def in_a_closure(n):
    for i in range(n):
        for j in range(n):
            a = b = i
            print(j, a, b)

    def show():
        print(b)

    show()


def adds_up(total, n):
    for i in range(n):
        for j in range(n):
            total += i * j
    return total


@pytest.mark.parametrize(
    ("function", "dead", "kept", "changed"),
    [
        (used_again, "a", "j", ""),
        (set_before, "a j", "", ""),
        (read_in_the_next_outer_iteration, "j", "a", ""),
        (set_in_a_branch_behind, "b j", "a", ""),
        (items, "j", "", "print rows x"),
        (in_a_closure, "a j", "b", ""),
        (adds_up, "j", "total", ""),
    ],
)
def test_what_an_iteration_leaves_behind(function, dead, kept, changed):
    found = carried(function.__code__, inner_loop(function))
    assert found.dead == set(dead.split())
    assert found.kept == tuple(kept.split())
    assert found.changed == tuple(changed.split())


def breaks_off(n):
    for i in range(n):
        for j in range(n):
            if j > i:
                break


def appends(n):
    for i in range(n):
        for j in range(n):
            n.rows[i].append(j)


def sets_an_attribute(n):
    for i in range(n):
        for j in range(n):
            n.last = i + j


@pytest.mark.parametrize("function", [breaks_off, appends, sets_an_attribute])
def test_what_is_hard_to_follow_is_not_told(function):
    assert carried(function.__code__, inner_loop(function)) is None


def inner_loop(function):
    """The line of the loop in the loop."""
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, text in enumerate(lines) if text.startswith("        for "))
