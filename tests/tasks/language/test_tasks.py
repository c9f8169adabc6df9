"""Where texts lie, and which lines are not trained on."""

import pytest

from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.language.tasks import part
from primal_attention.train.config import LanguageConfig

LINES = "".join(f"line {i}\n" for i in range(100))


def test_the_last_lines_are_not_trained_on():
    splits = [part(LINES, split) for split in ("train", "validation", "test")]
    assert "".join(splits) == LINES
    assert [text.count("\n") for text in splits] == [90, 5, 5]
    with pytest.raises(DataError, match="has 3 lines; expected at least 20"):
        part("a\nb\nc\n", "validation")


def test_a_text_of_its_own_to_test_with(tmp_path):
    for name in ("mine", "other"):
        (tmp_path / f"{name}.txt").write_text(LINES.replace("line", name))
    given = {"data": str(tmp_path / "mine.txt"), "test": str(tmp_path / "other.txt")}
    task = get_task("lm/text").bound(LanguageConfig(task="lm/text", **given))
    found = task.load(None)
    assert found["test"] == LINES.replace("line", "other")
    assert found["train"] + found["validation"] == LINES.replace("line", "mine")
    with pytest.raises(DataError, match=r"none\.txt is not there"):
        get_task("lm/text").bound(LanguageConfig(task="lm/text", data="none.txt"))
    with pytest.raises(DataError, match="expected --data FILE"):
        get_task("lm/text").load(tmp_path)


def test_wikitext_is_found(tmp_path):
    folder = tmp_path / "text" / "wikitext-2"
    folder.mkdir(parents=True)
    (folder / "wiki.valid.tokens").write_text(LINES)
    task = get_task("lm/wikitext2")
    assert task.load(tmp_path, splits=("validation",)) == {"validation": LINES}
    with pytest.raises(DataError, match=r"wiki\.train\.tokens of the WikiText archive"):
        task.load(tmp_path, splits=("train",))


def test_the_published_setting_is_a_recipe():
    names = ("softmax",) * 5 + ("primal",)
    recipe = get_task("lm/wikitext103").recipe("paper", names)
    config = LanguageConfig(task="lm/wikitext103", attention=names, **recipe)
    config.validate()
    assert (config.rank, config.weights, config.width, config.heads) == (30, "free", 512, 8)
    assert config.epochs * config.epoch_steps == 150_000


def test_what_does_not_fit_together_is_said():
    with pytest.raises(ValueError, match="weights is 'free' with place='rotary'"):
        LanguageConfig(task="lm/text", weights="free").validate()
    with pytest.raises(ValueError, match="attention 'performer' knows no rotation"):
        LanguageConfig(task="lm/text", attention=("performer",)).validate()
