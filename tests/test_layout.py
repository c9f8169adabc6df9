"""Tests mirror the package: where a module is tested follows from where it lies.

`src/primal_attention/theory/factors.py` is tested in `tests/theory/test_factors.py`; where one file
would be long, in the folder `tests/theory/factors/`, a file for each aspect. A room as a whole,
`tasks`, is tested in `tests/tasks/test_tasks.py`.
"""

from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "primal_attention"
FOLDERS = ("benchmarks", "deployment", "docs", "examples")  # beside the package, or all of it
WHOLE = {
    "test_contributing.py",
    "test_layout.py",
    "test_pairs.py",  # the grids of other tests
    "test_readme.py",
    "test_rooms.py",
    "attention/test_coverage.py",  # of all attentions
    "attention/test_sweep.py",  # what all attentions promise
    "cli/test_errors.py",  # of all commands
    "cli/test_help.py",
    "cli/test_tables.py",
    "cli/test_train.py",  # the command that most others stand on
    "convert/test_real_models.py",  # pretrained ones
    "train/test_building.py",  # a run while stores are built
    "train/test_kill.py",  # a run that is killed
    "train/estimator/test_checks.py",  # the official checks of all estimators
}
FILES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py"))
ROOMS = sorted(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*/__init__.py"))


def is_part(path: Path) -> bool:
    """Whether a module or a room of the package is called so."""
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()


def subject(file: str) -> bool:
    """Whether the package has what a test is named after."""
    path = PACKAGE / file.replace("test_", "").removesuffix(".py")
    aspect = path.parent.with_name(f"{path.parent.name}.py").is_file()
    return is_part(path) or aspect or path.name == path.parent.name


def test_a_test_is_named_after_what_it_tests():
    """A file without a module or room of its name moves, or WHOLE says what it is about."""
    given = [file for file in FILES if not file.startswith(FOLDERS) and file not in WHOLE]
    assert [file for file in given if not subject(file)] == []


def test_the_exceptions_exist():
    assert set(FILES) >= WHOLE
    assert not [file for file in WHOLE if subject(file)], "not an exception any more"


def test_every_room_is_tested():
    def tested(place: Path) -> bool:
        alone = place.with_name(f"test_{place.name}.py")
        return any(place.rglob("test_*.py")) or alone.exists()

    assert [room for room in ROOMS if not tested(TESTS / room)] == []
