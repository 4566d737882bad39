"""The book's exercises: what is asked, a check that explains what is wrong, and one answer to each.

A page's exercises are in `nkibook.exercises.puzzles.<page>`: a specification in NumPy and the data
it is checked on. Their answers are in `nkibook.exercises.solutions.<page>`, under the same names.
The page itself holds the skeletons. `tests/exercises` proves that every skeleton fails its check
and every solution passes.
"""

from nkibook.exercises.exercise import Exercise, check, exercise
from nkibook.exercises.verdict import Verdict

__all__ = ["Exercise", "Verdict", "check", "exercise"]
